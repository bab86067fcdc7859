#include "libplan/search/candidates/find_candidates.h"

#include <algorithm>
#include <memory>

#include "libplan/cost/constants.h"
#include "libplan/cost/links.h"
#include "libplan/request/plan_request.h"
#include "libplan/schedule/versions.h"
#include "libplan/search/candidates/even_partitions.h"
#include "libplan/search/candidates/near_optima.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Collects distinct partitions with what objective and bound say about them.
class Collector {
 public:
  Collector(const SearchCase& what, Costs& costs) : layers_(what.chain.size()), costs_(costs) {}

  void add(const Partition& partition, Origin origin) {
    if (partition.empty()) return;
    const auto same = [&](const Candidate& other) { return other.partition == partition; };
    if (std::ranges::any_of(found_, same)) return;
    found_.push_back({partition, objective_of(partition, layers_, costs_.objective()),
                      largest_load(partition, layers_, costs_.bound()), origin});
  }
  bool empty() const { return found_.empty(); }
  std::vector<Candidate> found() && { return std::move(found_); }

 private:
  int layers_;
  Costs& costs_;
  std::vector<Candidate> found_;
};

/// A limit of the objective; where links differ that takes the slowest for all and says too little. Aligned
/// stages know theirs.
double trusted(const SearchCase& what, const SearchSpace& space, double below) {
  return space.aligned || what.links == what.best_links ? below : kInfinity;
}

/// Where stages are aligned their replicas are known, and so are their all-reduce and who shares a card.
Seats aligned(Seats seats, const SearchCase& what, const SearchSpace& space) {
  if (space.aligned) align(seats, what.cluster, space.min_replicas);
  return seats;
}

/// Every Pareto point of load and sum, where stages are aligned the best; asynchronous: the optimum. Those that
/// take the exact memory only when some objective is within `most`.
std::vector<Partition> optima(const SearchCase& what, const SearchSpace& space, const ChainCost& cost,
                              double most = kInfinity) {
  if (!what.synchronous) return {search_least_load(space, cost, &cost, most - cost.base()).partition};
  if (space.aligned) return {search_best_point(space, cost, &cost, most).partition};
  std::vector<Partition> partitions;
  for (Point& point : search_points(space, cost, &cost, most).points)
    partitions.push_back(std::move(point.partition));
  return partitions;
}

std::vector<Partition> data_parallel(const SearchCase& what, const SearchSpace& space) {
  std::vector<Partition> partitions;
  for (int replicas = 1; space.exact_stages <= 1 && replicas <= space.replica_limit(); ++replicas) {
    if (!space.may_replicate(1, replicas)) continue;
    partitions.push_back({{0, what.chain.size(), replicas}});
  }
  return partitions;
}

/// Whether stages may have one replica each.
bool may_be_straight(const SearchSpace& space) {
  return space.min_replicas <= 1 && std::ranges::all_of(space.replicas, [](int count) { return count == 1; });
}

/// The best without replicas.
Partition straight(const ChainCost& cost, SearchSpace space, double most) {
  if (!may_be_straight(space)) return {};
  space.max_replicas = 1;
  return search_least_load(space, cost, &cost, most - cost.base()).partition;
}

/// Whether some objective is within `below`, by a bound of the memory.
bool comes_within(double below, const SearchCase& what, const SearchSpace& space, Costs& costs) {
  if (below == kInfinity) return true;
  const ChainCost& cost = costs.objective();
  if (!test_bottleneck(space, cost, below - cost.base()).feasible()) return false;
  if (!what.synchronous) return true;
  const auto test = [&](double limit) { return test_labels(space, cost, nullptr, limit); };
  return point_within(below, cost.base(), test).feasible();
}

/// Adds what fits; the most bytes that one of those needs on a device, 0 without any.
std::int64_t add_fitting(const SearchCase& what, const std::vector<Partition>& found, Origin origin,
                         Collector& collector) {
  std::int64_t peak = 0;
  for (const Partition& partition : found) {
    if (partition.empty() || !what.memory.fits(partition)) continue;
    peak = std::max(peak, what.memory.peak(partition));
    collector.add(partition, origin);
  }
  return peak;
}

/// The same case with this memory, which must outlive it.
SearchCase within(const SearchCase& what, const StageMemory& memory) {
  return {what.chain,       what.bound_chain,   memory,
          what.synchronous, what.micro_batches, what.all_reduce_overlap,
          what.links,       what.best_links,    what.cluster};
}

/// The searches of ever less memory, each just too little for the largest plan of the one before; none but
/// small models are searched to the end.
void inherit_from_less_memory(const SearchCase& what, const SearchSpace& space, double best, double below,
                              Collector& collector) {
  const int tries = kLimitedWork / (space.layers * space.devices);
  std::int64_t peak = what.memory.limit().bytes;
  for (int i = 0; i < tries; ++i) {
    const StageMemory tighter = what.memory.with_limit(i == 0 ? peak : peak - 1);
    const SearchCase less = within(what, tighter);
    if (search_bottleneck(space, bound_cost(less, space)).value > best) return;
    const std::vector<Partition> found =
        optima(less, space, objective_cost(less, space), trusted(what, space, below));
    peak = add_fitting(less, found, Origin::less_memory, collector);
    if (peak == 0) return;
  }
}

/// find_fitting() under the objective of the case.
Partition find_fitting(const SearchCase& what, const SearchSpace& space, const ChainCost& cost) {
  Partition partition = test_bottleneck(space, cost, kInfinity).partition;
  if (partition.empty() || what.memory.fits(partition)) return partition;
  return test_labels(space, cost, &cost, kInfinity, Sums::ignore).point.partition;
}

/// All that may be faster than the best plan so far, by their bound. If that is more than is worth simulating,
/// those of the least objective.
std::vector<Partition> close_partitions(const SearchSpace& space, double best, double below, Costs& costs) {
  constexpr std::size_t kMost = 400;
  const ChainCost& bound = costs.bound();
  if (auto all = partitions_within(space, bound, best, kMost)) return *std::move(all);
  const ChainCost& cost = costs.objective();
  const double least = search_bottleneck(space, bound).value;
  return near_optima(space, cost, least - cost.base(), below - cost.base(), kMost);
}

/// The time of all micro-batches in units of the least, which is the one in the bound's chain.
double all_time(const MicroBatches& batch) { return batch.total(&MicroBatches::time) / batch.least_time(); }

/// The cheapest all-reduces of 1, 2, .. replicas, as far as a candidate has needed them.
class LeastForms {
 public:
  explicit LeastForms(const Cluster& cluster) : cluster_(cluster) {}
  const std::vector<AllReduceForm>& of(int replicas) {
    while (std::ssize(forms_) < replicas)
      forms_.push_back(least_all_reduce_forms(cluster_, static_cast<int>(forms_.size()) + 1));
    return forms_[at(replicas - 1)];
  }

 private:
  const Cluster& cluster_;
  std::vector<std::vector<AllReduceForm>> forms_;
};

/// A layer alone on as many replicas as it likes: its own work, all-reduce and update.
double least_load(const SearchCase& what, LeastForms& forms, int layer, int most_replicas, double known) {
  double least = std::numeric_limits<double>::infinity();
  const Chain& chain = what.bound_chain;
  const LoadKind kind = what.synchronous ? LoadKind::steady : LoadKind::period;
  const LayerSums sums = chain.between(layer, layer + 1);
  LoadTerms alone{.forward = sums.times.forward, .backward = sums.times.backward, .fixed = chain.fixed};
  const bool sharded = what.memory.in_flight().sharded;
  const double unit = what.micro_batches.least_time();  // of the bound's chain
  const double overlap = what.all_reduce_overlap * what.micro_batches.most_time() / unit;
  for (alone.replicas = 1; alone.replicas <= most_replicas && least > known; ++alone.replicas) {
    const int q = alone.replicas;
    alone.turns = what.micro_batches.turns(q, &MicroBatches::time) / unit;
    if (!is_served(what.memory.in_flight().policy))
      alone.all_reduce = cheapest(forms.of(q), chain.reduction(layer, layer + 1, sharded));
    alone.update = chain.stage_update(layer, layer + 1, sharded ? q : 0);
    least = std::min(least, stage_load(kind, alone, all_time(what.micro_batches), overlap));
  }
  return least;
}

}  // namespace

ChainCost objective_cost(const SearchCase& what, const SearchSpace& space) {
  const LoadKind kind = what.synchronous ? LoadKind::step : LoadKind::period;
  return {what.chain,
          {kind, what.micro_batches, what.all_reduce_overlap},
          aligned(equal_seats(space.replica_limit(), what.links, what.memory.limit()), what, space),
          what.memory.in_flight()};
}

ChainCost bound_cost(const SearchCase& what, const SearchSpace& space) {
  const LoadKind kind = what.synchronous ? LoadKind::step_bound : LoadKind::period_bound;
  return {what.bound_chain,
          {kind, what.micro_batches, what.all_reduce_overlap},
          aligned(equal_seats(space.replica_limit(), what.best_links, what.memory.limit(), &what.cluster), what,
                  space),
          what.memory.in_flight()};
}

double order_free_bound(const SearchCase& what, const SearchSpace& space) {
  const int layers = what.bound_chain.size();
  const Chain& chain = what.bound_chain;
  const double work = chain.stage_compute(0, layers);
  const double way = chain.way(0, layers) + chain.fixed.forward + chain.fixed.backward;
  double bound = std::max(what.synchronous ? way : 0, all_time(what.micro_batches) * work / space.devices);
  LeastForms forms(what.cluster);
  for (int layer = 0; layer + 1 < layers; ++layer)  // the last position holds the loss, in this order only
    bound = std::max(bound, least_load(what, forms, layer, space.replica_limit(), bound));
  return bound;
}

const ChainCost& Costs::objective() {
  if (!objective_) objective_.reset(new ChainCost(objective_cost(what_, space_)));  // which does not move
  return *objective_;
}

const ChainCost& Costs::bound() {
  if (!bound_) bound_.reset(new ChainCost(bound_cost(what_, space_)));
  return *bound_;
}

std::vector<Candidate> find_candidates(const SearchCase& what, const SearchSpace& space, Costs& costs,
                                       const Partition& least, double below) {
  if (!comes_within(below, what, space, costs)) return {};
  Collector collector(what, costs);
  add_fitting(what, optima(what, space, costs.objective(), below), Origin::points, collector);
  if (!space.aligned) {  // one of many such spaces, whose plans are long
    add_fitting(what, data_parallel(what, space), Origin::data_parallel, collector);
    const Partition alone = straight(costs.objective(), space, below);
    add_fitting(what, {alone}, Origin::straight, collector);
    add_fitting(what, even_partitions(space, static_cast<int>(alone.size()), what.chain), Origin::even_stages,
                collector);
    add_fitting(what, {least}, Origin::least_bound, collector);
  }
  if (what.memory.limited() && collector.empty() && below == kInfinity)
    add_fitting(what, {find_fitting(what, space, costs.objective())}, Origin::anything, collector);
  return std::move(collector).found();
}

std::vector<Candidate> find_misjudged(const SearchCase& what, const SearchSpace& space, Costs& costs,
                                      double best, double below) {
  Collector collector(what, costs);
  if (is_small(space.layers, space.devices))
    add_fitting(what, close_partitions(space, best, below, costs), Origin::near_optima, collector);
  if (what.memory.limited()) inherit_from_less_memory(what, space, best, below, collector);
  return std::move(collector).found();
}

std::vector<Candidate> find_seeds(const SearchCase& what, const SearchSpace& space, Costs& costs) {
  constexpr double kLess = 0.85, kLeastPart = 0.4;
  Collector collector(what, costs);
  if (!space.aligned) add_fitting(what, data_parallel(what, space), Origin::data_parallel, collector);
  const int fixed = space.exact_stages > 0 ? space.exact_stages : space.max_stages;
  const int most = std::min(space.devices, space.layers);
  for (int stages = fixed > 0 ? std::min(fixed, most) : most; stages > 1; stages /= 2) {
    if (space.aligned || !may_be_straight(space) || stages < space.exact_stages) break;
    add_fitting(what, even_partitions(space, stages, what.chain), Origin::even_stages, collector);
  }
  // A bound of the memory admits plans that do not fit. One that fits is near what it admits within less.
  for (double part = 1; collector.empty() && part > kLeastPart; part *= kLess) {
    const auto bytes = static_cast<std::int64_t>(part * static_cast<double>(what.memory.limit().bytes));
    const StageMemory tighter = what.memory.with_limit(bytes);
    const SearchCase less = within(what, tighter);
    const BottleneckResult found = search_bottleneck(space, objective_cost(less, space));
    add_fitting(what, {found.partition}, Origin::less_memory, collector);
    if (!found.feasible() || !what.memory.limited()) break;
  }
  return std::move(collector).found();
}

std::vector<Candidate> find_anything(const SearchCase& what, const SearchSpace& space, Costs& costs) {
  Collector collector(what, costs);
  add_fitting(what, {find_fitting(what, space, costs.objective())}, Origin::anything, collector);
  return std::move(collector).found();
}

Partition find_fitting(const SearchCase& what, const SearchSpace& space) {
  return find_fitting(what, space, objective_cost(what, space));
}

}  // namespace pp::plan
