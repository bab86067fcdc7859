#include "libplan/search/candidates/ordered_candidates.h"

#include <algorithm>

#include "libplan/cost/chain_cost.h"
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

/// Searches one order of the devices, the device of the last layers first.
class OrderSearch {
 public:
  OrderSearch(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
              const std::vector<std::int64_t>& bytes, const std::vector<int>& order, Neighbours neighbours)
      : one_(one),
        cluster_(cluster),
        request_(request),
        bytes_(bytes),
        order_(order),
        neighbours_(neighbours),
        objective_(cost(LoadKind::step)),
        steady_(cost(LoadKind::steady)) {}

  /// Appends what fits: the Pareto points of the step and what would be best if steps followed each other
  /// without a gap; of a stream, the best period.
  void run(const SearchSpace& space, std::vector<OrderedCandidate>& found) {
    if (one_.synchronous) add_all(space, objective_, points, found);
    add_all(space, steady_, bottleneck, found);
  }

  /// Appends this partition, if it fits.
  void add(Partition partition, std::vector<OrderedCandidate>& found) {
    if (!objective_.fits(partition)) return;
    const double estimate = objective_of(partition, one_.chain.size(), objective_);
    std::vector<int> devices(order_.rend() - device_count(partition), order_.rend());
    found.push_back({std::move(partition), first_twins(cluster_, bytes_, std::move(devices)), estimate});
  }

 private:
  using Search = std::vector<Partition>(const SearchSpace&, const ChainCost&, const ExactMemory*);

  static std::vector<Partition> points(const SearchSpace& space, const ChainCost& cost,
                                       const ExactMemory* memory) {
    std::vector<Partition> partitions;
    for (Point& point : search_points(space, cost, memory).points)
      partitions.push_back(std::move(point.partition));
    return partitions;
  }

  static std::vector<Partition> bottleneck(const SearchSpace& space, const ChainCost& cost,
                                           const ExactMemory* memory) {
    BottleneckResult best = search_least_load(space, cost, memory);
    if (!best.feasible()) return {};
    return {std::move(best.partition)};
  }

  /// With the exact memory where the bound of it lets something pass.
  void add_all(const SearchSpace& space, const ChainCost& cost, Search search,
               std::vector<OrderedCandidate>& found) {
    std::vector<Partition> partitions = search(space, cost, nullptr);
    const bool fit = std::ranges::all_of(partitions, [&](const Partition& one) { return cost.fits(one); });
    if (!fit) partitions = search(space, cost, &cost);
    for (Partition& partition : partitions) add(std::move(partition), found);
  }

  ChainCost cost(LoadKind synchronous) const {
    std::vector<std::int64_t> bytes;
    for (const int position : order_) bytes.push_back(bytes_[at(position)]);
    return {
        one_.chain, load_options(one_, request_, synchronous),
        listed_seats({cluster_, order_, bytes}, one_.devices.speed, one_.devices.limit.context, neighbours_),
        one_.in_flight};
  }

  const PlanCase& one_;
  const Cluster& cluster_;
  const PlanRequest& request_;
  const std::vector<std::int64_t>& bytes_;
  const std::vector<int>& order_;
  const Neighbours neighbours_;
  const ChainCost objective_;
  const ChainCost steady_;
};

/// The order in which the search sees `positions` of the workers in turn; the other devices stand at the end.
std::vector<int> order_of(const std::vector<int>& positions, std::size_t devices) {
  std::vector<int> order(positions.rbegin(), positions.rend());
  for (int d = 0; d < static_cast<int>(devices); ++d) {
    if (std::ranges::find(positions, d) == positions.end()) order.push_back(d);
  }
  return order;
}

}  // namespace

std::vector<OrderedCandidate> ordered_candidates(const PlanCase& one, const Cluster& cluster,
                                                 const PlanRequest& request) {
  const std::size_t devices = cluster.devices.size();
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, one.devices.shared);
  std::vector<OrderedCandidate> found;
  if (devices > kMostDevices || !concerns(one, cluster, bytes)) return found;
  std::vector<Neighbours> views{Neighbours::all_devices};
  if (is_limited(one.devices.limit) && mixes_hand_over(cluster)) views.push_back(Neighbours::next_device);
  for (const std::vector<int>& order : device_orders(cluster, bytes, request.placement)) {
    for (const Neighbours view : views)
      OrderSearch(one, cluster, request, bytes, order, view).run(one.space, found);
  }
  if (request.placement != Placement::automatic && request.placement != Placement::fresh) return found;
  std::vector<OrderedCandidate> fresh;
  for (const OrderedCandidate& candidate : found) {
    const std::vector<int> positions = place_fresh(cluster, replicas_of(candidate.partition));
    if (positions == candidate.devices) continue;
    const std::vector<int> order = order_of(positions, devices);
    OrderSearch(one, cluster, request, bytes, order, views.back()).add(candidate.partition, fresh);
  }
  if (request.placement == Placement::fresh) return fresh;
  std::ranges::move(fresh, std::back_inserter(found));
  return found;
}

double ordered_bound(const PlanCase& one, const Cluster& cluster, const PlanRequest& request, double flat) {
  const std::vector<std::int64_t> bytes = usable_bytes(cluster, request, one.devices.shared);
  if (!concerns(one, cluster, bytes)) return flat;
  LoadOptions options = load_options(one, request, LoadKind::step_bound);
  if (options.kind == LoadKind::period) options.kind = LoadKind::period_bound;
  const ChainCost bound(
      one.bound_chain, options,
      best_seats({cluster, one.devices.positions, bytes}, one.devices.best_speed, one.devices.limit.context),
      one.in_flight);
  double speeds = 0;
  for (const int position : one.devices.positions)
    speeds += cluster.devices[at(position)].speed / one.devices.best_speed;
  const double shared = all_work(one) / speeds;
  return std::max(search_bottleneck(one.space, bound).value, shared);
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
