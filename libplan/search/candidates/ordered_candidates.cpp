#include "libplan/search/candidates/ordered_candidates.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "libplan/cost/chain_cost.h"
#include "libplan/cost/constants.h"
#include "libplan/request/device_orders.h"
#include "libplan/search/candidates/placed.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostDevices = 64;  ///< the search is quadratic in them

/// Whether the case has all devices, and it matters where its stages run.
bool concerns(const PlanCase& one, const Cluster& cluster, const std::vector<std::int64_t>& bytes) {
  return one.devices.positions.size() == cluster.devices.size() && order_matters(cluster, bytes);
}

/// Whether some devices hand over by reference, and others do not.
bool mixes_hand_over(const Cluster& cluster) {
  const auto reference = [](const Device& a, const Device& b) {
    return hand_over(a, b) == HandOver::reference;
  };
  const auto with = [&](const Device& a) {
    return std::ranges::count_if(cluster.devices, [&](const Device& b) { return reference(a, b); });
  };
  const auto all = std::ssize(cluster.devices);
  return std::ranges::any_of(cluster.devices,
                             [&](const Device& device) { return with(device) > 1 && with(device) < all; });
}

LoadOptions load_options(const PlanCase& one, const PlanRequest& request, LoadKind synchronous) {
  return {one.synchronous ? synchronous : LoadKind::period, one.in_flight.batch,
          request.all_reduce_overlap.value_or(0)};
}

/// Searches one list of the devices.
class OrderSearch {
 public:
  OrderSearch(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
              const DeviceLists::List& list, const SearchSpace& space)
      : one_(one),
        space_(space),
        cluster_(cluster),
        request_(request),
        bytes_(usable_bytes(cluster, request, one.devices.shared)),
        list_(list),
        objective_(one.chain, load_options(one, request, LoadKind::step), list.seats, one.in_flight) {}

  /// Appends what fits: the Pareto points of the step and what would be best if steps followed each other
  /// without a gap; of a stream, the best period. Nothing when no objective is within `near`.
  void run(double near, std::vector<OrderedCandidate>& found) {
    if (!one_.synchronous) return add_least_load(objective_, near, found);
    const std::size_t before = found.size();
    add_points(near, found);
    if (near < kInfinity && found.size() == before) return;
    const ChainCost steady(one_.chain, load_options(one_, request_, LoadKind::steady), list_.seats,
                           one_.in_flight);
    add_least_load(steady, kInfinity, found);
  }

  /// Appends this partition, if it fits.
  void add(Partition partition, std::vector<OrderedCandidate>& found) {
    if (!objective_.fits(partition)) return;
    const double estimate = objective_of(partition, one_.chain.size(), objective_);
    std::vector<int> devices(list_.order.rend() - device_count(partition), list_.order.rend());
    found.push_back({std::move(partition), first_twins(cluster_, bytes_, std::move(devices)), estimate});
  }

 private:
  void add_points(double near, std::vector<OrderedCandidate>& found) {
    for (Point& point : search_points(space_, objective_, &objective_, near).points)
      add(std::move(point.partition), found);
  }

  void add_least_load(const ChainCost& cost, double near, std::vector<OrderedCandidate>& found) {
    if (near < kInfinity && !test_labels(space_, cost, nullptr, near, Sums::ignore).feasible()) return;
    BottleneckResult best = search_least_load(space_, cost, &cost, near);
    if (best.feasible()) add(std::move(best.partition), found);
  }

  const PlanCase& one_;
  const SearchSpace& space_;
  const Cluster& cluster_;
  const PlanRequest& request_;
  const std::vector<std::int64_t> bytes_;
  const DeviceLists::List& list_;
  const ChainCost objective_;
};

/// The order in which the search sees `positions` of the workers in turn; the other devices stand at the end.
std::vector<int> order_of(const std::vector<int>& positions, std::size_t devices) {
  std::vector<int> order(positions.rbegin(), positions.rend());
  for (int d = 0; d < static_cast<int>(devices); ++d) {
    if (std::ranges::find(positions, d) == positions.end()) order.push_back(d);
  }
  return order;
}

DeviceLists::List list_of(std::vector<int> order, Neighbours view, const PlanCase& one, const Cluster& cluster,
                          const std::vector<std::int64_t>& usable) {
  std::vector<std::int64_t> bytes;
  for (const int position : order) bytes.push_back(usable[at(position)]);
  Seats seats = listed_seats({cluster, order, bytes}, one.devices.speed, one.devices.limit.context, view);
  return {std::move(order), std::make_shared<const Seats>(std::move(seats))};
}

/// Whether less crosses a boundary than the nearest ones on both sides that differ, for each.
std::vector<char> lower_than_both_sides(const Chain& chain, const std::vector<int>& boundaries) {
  std::vector<double> bytes;
  for (const int k : boundaries) bytes.push_back(chain.cut_activation[at(k)] + chain.cut_gradient[at(k)]);
  std::vector<char> low(bytes.size(), 0);
  for (std::size_t begin = 0, end = 0; begin < bytes.size(); begin = end) {
    while (end < bytes.size() && bytes[end] == bytes[begin]) ++end;
    const bool falls = begin == 0 || bytes[begin - 1] > bytes[begin];
    const bool rises = end == bytes.size() || bytes[end] > bytes[begin];
    std::fill(low.begin() + static_cast<std::ptrdiff_t>(begin), low.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<char>(falls && rises));
  }
  return low;
}

/// Whom stages hand over to by reference: both views where they differ.
std::vector<Neighbours> views_of(const PlanCase& one, const Cluster& cluster) {
  std::vector<Neighbours> views{Neighbours::all_devices};
  if (is_limited(one.devices.limit) && mixes_hand_over(cluster)) views.push_back(Neighbours::next_device);
  return views;
}

}  // namespace

const std::vector<DeviceLists::List>& DeviceLists::of(const PlanCase& one) {
  const DeviceSet& set = one.devices;
  const Key key(set.shared, set.speed, set.limit.context, is_limited(set.limit));
  static const std::vector<List> none;
  if (set.positions.size() != cluster_.devices.size() || cluster_.devices.size() > kMostDevices) return none;
  const auto [found, fresh] = lists_.try_emplace(key);
  const std::vector<std::int64_t> bytes = usable_bytes(cluster_, request_, set.shared);
  if (!fresh || !concerns(one, cluster_, bytes)) return found->second;
  for (const std::vector<int>& order : device_orders(cluster_, bytes, request_.placement)) {
    for (const Neighbours view : views_of(one, cluster_))
      found->second.push_back(list_of(order, view, one, cluster_, bytes));
  }
  return found->second;
}

std::vector<OrderedCandidate> ordered_candidates(const PlanCase& one, const Cluster& cluster,
                                                 const PlanRequest& request, const DeviceLists::List& list,
                                                 const SearchSpace& space, double near) {
  std::vector<OrderedCandidate> found;
  OrderSearch(one, cluster, request, list, space).run(near, found);
  const bool may_be_fresh = request.placement == Placement::automatic || request.placement == Placement::fresh;
  if (found.empty() || !may_be_fresh) return found;
  std::vector<OrderedCandidate> fresh;
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, one.devices.shared);
  const Neighbours view = views_of(one, cluster).back();
  for (const OrderedCandidate& candidate : found) {
    const std::vector<int> positions = place_fresh(cluster, replicas_of(candidate.partition));
    if (positions == candidate.devices) continue;
    const DeviceLists::List seats =
        list_of(order_of(positions, cluster.devices.size()), view, one, cluster, bytes);
    OrderSearch(one, cluster, request, seats, space).add(candidate.partition, fresh);
  }
  if (request.placement == Placement::fresh) return fresh;
  std::ranges::move(fresh, std::back_inserter(found));
  return found;
}

std::vector<SearchSpace> listed_spaces(const PlanCase& one) {
  std::vector<SearchSpace> spaces{one.space};
  std::vector<int> open;
  for (int k = 1; k < one.space.layers; ++k)
    if (one.space.may_cut(k)) open.push_back(k);
  const std::vector<char> low = lower_than_both_sides(one.chain, open);
  if (is_small(one.space.layers, one.space.devices) || 2 * std::ranges::count(low, 1) > std::ssize(open))
    return spaces;
  SearchSpace first = one.space;
  first.cut_allowed.assign(at(one.space.layers + 1), 0);
  for (std::size_t i = 0; i < open.size(); ++i) first.cut_allowed[at(open[i])] = low[i];
  spaces.insert(spaces.begin(), std::move(first));
  return spaces;
}

double ordered_bound(const PlanCase& one, const Cluster& cluster, const PlanRequest& request, double flat,
                     double enough) {
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, one.devices.shared);
  if (!concerns(one, cluster, bytes)) return flat;
  LoadOptions options = load_options(one, request, LoadKind::step_bound);
  if (options.kind == LoadKind::period) options.kind = LoadKind::period_bound;
  std::vector<double> slowness;
  double speeds = 0;
  for (const int position : one.devices.positions) {
    const Device& device = cluster.devices[at(position)];
    slowness.push_back(one.devices.slowness[at(device.profile)] / device.speed);
    speeds += device.speed / one.devices.slowness[at(device.profile)];
  }
  const ChainCost bound(
      one.bound_chain, options,
      best_seats({cluster, one.devices.positions, bytes}, std::move(slowness), one.devices.limit.context),
      one.in_flight);
  const double shared = all_work(one) / speeds;
  return std::max(bottleneck_bound(one.space, bound, enough), shared);
}

bool equal_memories(const Cluster& cluster, const PlanRequest& request) {
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, SharedMemory::whole);
  return std::ranges::all_of(bytes, [&](std::int64_t one) { return one == bytes.front(); });
}

std::vector<int> worker_positions(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                  const Partition& partition) {
  const std::vector<int>& set = one.devices.positions;
  if (request.placement == Placement::fresh && set.size() == cluster.devices.size())
    return place_fresh(cluster, replicas_of(partition));
  return {set.begin(), set.begin() + device_count(partition)};
}

}  // namespace pp::plan
