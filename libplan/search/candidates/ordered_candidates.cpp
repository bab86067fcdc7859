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
              const DeviceLists::List& list)
      : one_(one),
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
    for (Point& point : search_points(one_.space, objective_, &objective_, near).points)
      add(std::move(point.partition), found);
  }

  void add_least_load(const ChainCost& cost, double near, std::vector<OrderedCandidate>& found) {
    if (near < kInfinity && !test_labels(one_.space, cost, nullptr, near, Sums::ignore).feasible()) return;
    BottleneckResult best = search_least_load(one_.space, cost, &cost, near);
    if (best.feasible()) add(std::move(best.partition), found);
  }

  const PlanCase& one_;
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
                                                 const PlanRequest& request, DeviceLists& lists, double near) {
  std::vector<OrderedCandidate> found;
  for (const DeviceLists::List& list : lists.of(one)) OrderSearch(one, cluster, request, list).run(near, found);
  const bool may_be_fresh = request.placement == Placement::automatic || request.placement == Placement::fresh;
  if (found.empty() || !may_be_fresh) return found;
  std::vector<OrderedCandidate> fresh;
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, one.devices.shared);
  const Neighbours view = views_of(one, cluster).back();
  for (const OrderedCandidate& candidate : found) {
    const std::vector<int> positions = place_fresh(cluster, replicas_of(candidate.partition));
    if (positions == candidate.devices) continue;
    const DeviceLists::List list =
        list_of(order_of(positions, cluster.devices.size()), view, one, cluster, bytes);
    OrderSearch(one, cluster, request, list).add(candidate.partition, fresh);
  }
  if (request.placement == Placement::fresh) return fresh;
  std::ranges::move(fresh, std::back_inserter(found));
  return found;
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
