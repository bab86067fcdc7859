#include "libplan/search/candidates/candidates.h"

#include <algorithm>
#include <cmath>

#include "libplan/search/candidates/near_optima.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/pair_search.h"
#include "libplan/search/exact/synchronous.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ChainLoad objective_load(const SearchCase& what, const SearchSpace& space) {
  return make_load(what, space, what.synchronous ? LoadKind::step : LoadKind::period);
}

ChainLoad bound_load(const SearchCase& what, const SearchSpace& space) {
  return make_load(what, space, what.synchronous ? LoadKind::step_bound : LoadKind::period_bound);
}

/// What no partition changes of the objective.
double base_of(const SearchCase& what) {
  return what.synchronous ? what.chain.stage_compute(0, what.chain.size()) : 0;
}

/// Collects distinct partitions with what objective and bound say about them.
class Collector {
 public:
  Collector(const SearchCase& what, const SearchSpace& space, CandidateList& list)
      : chain_(what.chain),
        synchronous_(what.synchronous),
        base_(base_of(what)),
        list_(list),
        load_(objective_load(what, space)),
        bound_(bound_load(what, space)),
        fill_(fill_times(what.chain, what.link)) {}

  void add(const Partition& partition) {
    if (partition.empty()) return;
    const auto same = [&](const Candidate& other) { return other.partition == partition; };
    if (std::any_of(list_.candidates.begin(), list_.candidates.end(), same)) return;
    double estimate = bottleneck_value(partition, chain_.size(), load_) + base_;
    if (synchronous_) {
      for (const int cut : cuts_of(partition)) estimate += fill_[static_cast<std::size_t>(cut)];
    }
    list_.candidates.push_back({partition, estimate, bottleneck_value(partition, chain_.size(), bound_)});
  }

 private:
  const Chain& chain_;
  bool synchronous_;
  double base_;
  CandidateList& list_;
  ChainLoad load_, bound_;
  std::vector<double> fill_;
};

/// Of the objective; where links differ it takes the slowest for all and says too little.
double most_of(const SearchCase& what, const SearchLimits& limits) {
  return what.link == what.best_link ? limits.most : kInfinity;
}

BottleneckResult exact_bottleneck(const SearchCase& what, const SearchSpace& space, const ChainLoad& load,
                                  double most) {
  BottleneckResult result = search_bottleneck(space, load);
  if (!result.feasible() || what.memory.fits(result.partition)) return result;
  const double heaviest = most - base_of(what);
  if (heaviest < kInfinity && !test_pairs(space, load, &what.memory, heaviest).feasible()) return {};
  return search_pairs(space, load, &what.memory, result.value);
}

SynchronousResult exact_synchronous(const SearchCase& what, const SearchSpace& space, const ChainLoad& load,
                                    const std::vector<double>& fill, double most) {
  const double base = base_of(what);
  SynchronousResult result = search_synchronous(space, load, fill, base);
  const bool fits = std::all_of(result.points.begin(), result.points.end(), [&](const SynchronousPoint& point) {
    return what.memory.fits(point.partition);
  });
  if (fits) return result;
  return search_synchronous_pairs(space, load, &what.memory, fill, base, search_bottleneck(space, load).value,
                                  most);
}

/// Every Pareto point of load and fill; asynchronous: the optimum. Those that take a pair search only when some
/// objective is within `most`.
std::vector<Partition> optima(const SearchCase& what, SearchSpace space, double most = kInfinity) {
  const ChainLoad load = objective_load(what, space);
  space.scan_replicas = load.scan_replicas();
  if (!what.synchronous) return {exact_bottleneck(what, space, load, most).partition};
  std::vector<Partition> partitions;
  const std::vector<double> fill = fill_times(what.chain, what.link);
  for (SynchronousPoint& point : exact_synchronous(what, space, load, fill, most).points)
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

std::vector<Partition> straight(const SearchCase& what, SearchSpace space, double most) {
  if (std::ranges::any_of(space.replicas, [](int count) { return count > 1; })) return {};
  space.max_replicas = 1;
  return {exact_bottleneck(what, space, objective_load(what, space), most).partition};
}

/// Adds what fits; the most bytes that one of those needs on a device, 0 without any.
std::int64_t add_fitting(const SearchCase& what, const std::vector<Partition>& found, Collector& collector) {
  std::int64_t peak = 0;
  for (const Partition& partition : found) {
    if (partition.empty() || !what.memory.fits(partition)) continue;
    peak = std::max(peak, what.memory.peak(partition));
    collector.add(partition);
  }
  return peak;
}

/// The searches of ever less memory, each just too little for the largest plan of the one before; none but
/// small models are searched to the end.
void inherit_from_less_memory(const SearchCase& what, const SearchSpace& space, const SearchLimits& limits,
                              Collector& collector) {
  const int tries = kLimitedWork / (space.layers * space.devices);
  std::int64_t peak = what.memory.limit();
  for (int i = 0; i < tries; ++i) {
    const StageMemory tighter = what.memory.with_limit(i == 0 ? peak : peak - 1);
    const SearchCase less{
        what.chain,         what.bound_chain,        tighter,        what.limited, what.synchronous,
        what.micro_batches, what.all_reduce_overlap, what.recompute, what.link,    what.best_link};
    if (search_bottleneck(space, bound_load(less, space)).value > limits.slowest) return;
    peak = add_fitting(less, optima(less, space, most_of(what, limits)), collector);
    if (peak == 0) return;
  }
}

/// Half the bandwidth again and again, until one device does best; large models stop earlier. Small ones take
/// the powers of two between as well, which links of any speed above have in common.
void inherit_from_slower_links(SearchCase what, const SearchSpace& space, Collector& collector) {
  const bool small = is_small(space.layers, space.devices);
  const int halvings = small ? 20 : 4;
  if (what.limited && halvings * space.layers * space.devices > kLimitedWork) return;
  double bandwidth = what.link.bandwidth.value;
  for (int i = 0; i < halvings && bandwidth > 0; ++i) {
    if (small) {
      what.link.bandwidth.value = std::exp2(std::floor(std::log2(bandwidth)));
      add_fitting(what, optima(what, space), collector);
    }
    what.link.bandwidth.value = bandwidth /= 2;
    const std::vector<Partition> found = optima(what, space);
    add_fitting(what, found, collector);
    if (found.size() == 1 && device_count(found.front()) <= 1) return;
  }
}

/// All that may be faster than the best plan so far, by their bound. If that is more than is worth simulating,
/// those of the least objective.
std::vector<Partition> close_partitions(const SearchCase& what, SearchSpace space, double bound,
                                        const SearchLimits& limits) {
  constexpr std::size_t kMost = 400;
  if (auto all = partitions_within(space, bound_load(what, space), {}, limits.slowest, kMost))
    return *std::move(all);
  const ChainLoad load = objective_load(what, space);
  space.scan_replicas = load.scan_replicas();
  const std::vector<double> fill = what.synchronous ? fill_times(what.chain, what.link) : std::vector<double>{};
  const double base = base_of(what);
  return near_optima(space, load, fill, bound - base, limits.most - base, kMost);
}

/// Adds what the searches of `limits.depth` find. `least`: the plan of the bound.
void collect(const SearchCase& what, const SearchSpace& space, const SearchLimits& limits,
             const BottleneckResult& least, const CandidateList& list, Collector& collector) {
  if (limits.depth == Depth::inherited) {
    if (is_small(space.layers, space.devices))
      add_fitting(what, close_partitions(what, space, list.bound, limits), collector);
    if (what.limited) inherit_from_less_memory(what, space, limits, collector);
    return inherit_from_slower_links(what, space, collector);
  }
  const double most = most_of(what, limits);
  if (limits.depth == Depth::plain) {
    add_fitting(what, optima(what, space, most), collector);
    add_fitting(what, data_parallel(what, space), collector);
  }
  add_fitting(what, straight(what, space, most), collector);
  add_fitting(what, {least.partition}, collector);
  if (what.limited && list.candidates.empty() && most == kInfinity)
    add_fitting(what, {find_fitting(what, space)}, collector);  // which alone decides that nothing fits
}

}  // namespace

bool is_small(int layers, int devices) {
  constexpr std::int64_t kSmall = 16'384;
  return std::int64_t{layers} * devices * devices <= kSmall;
}

ChainLoad make_load(const SearchCase& what, const SearchSpace& space, LoadKind kind) {
  const bool bound = kind == LoadKind::step_bound || kind == LoadKind::period_bound;
  const LoadOptions options{kind, what.micro_batches, what.all_reduce_overlap,
                            bound ? what.best_link : what.link, what.recompute};
  return {bound ? what.bound_chain : what.chain, options, what.limited ? &what.memory : nullptr,
          space.replica_limit()};
}

CandidateList find_candidates(const SearchCase& what, const SearchSpace& space, const SearchLimits& limits) {
  CandidateList list;
  const BottleneckResult least = search_bottleneck(space, bound_load(what, space));
  list.bound = least.value;
  if (!least.feasible() || list.bound > limits.slowest) return list;
  Collector collector(what, space, list);
  try {
    collect(what, space, limits, least, list, collector);
  } catch (const SearchStopped&) {
    list.cut_short = true;
    if (!list.candidates.empty() || limits.slowest < kInfinity) return list;
    SearchSpace quick = space;
    quick.stop = {};
    add_fitting(what, data_parallel(what, quick), collector);
    add_fitting(what, {least.partition, find_fitting(what, quick)}, collector);
  }
  return list;
}

Partition find_fitting(const SearchCase& what, const SearchSpace& space) {
  const ChainLoad load = make_load(what, space, LoadKind::step_bound);
  Partition partition = test_bottleneck(space, load, kInfinity).partition;
  if (partition.empty() || what.memory.fits(partition)) return partition;
  return test_pairs(space, load, &what.memory, kInfinity).partition;
}

}  // namespace pp::plan
