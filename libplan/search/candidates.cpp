#include "libplan/search/candidates.h"

#include <algorithm>

#include "libplan/search/bottleneck.h"
#include "libplan/search/pair_search.h"
#include "libplan/search/synchronous.h"

namespace pp::plan {
namespace {

/// Collects distinct partitions with what the search objective says about them.
class Collector {
 public:
  Collector(const SearchCase& what, CandidateList& list)
      : what_(what), list_(list), fill_(fill_times(what.chain, what.link)) {}

  void add(const Partition& partition, const ChainLoad& load) {
    if (partition.empty() || !what_.memory.fits(partition)) return;
    const auto same = [&](const Candidate& other) { return other.partition == partition; };
    if (std::any_of(list_.candidates.begin(), list_.candidates.end(), same)) return;
    double estimate = bottleneck_value(partition, what_.chain.size(), load);
    if (what_.synchronous) {
      estimate += what_.chain.compute(0, what_.chain.size());
      for (const int cut : cuts_of(partition)) estimate += fill_[static_cast<std::size_t>(cut)];
    }
    list_.candidates.push_back({partition, estimate});
  }
  const std::vector<double>& fill() const { return fill_; }

 private:
  const SearchCase& what_;
  CandidateList& list_;
  std::vector<double> fill_;
};

BottleneckResult exact_bottleneck(const SearchCase& what, const SearchSpace& space, const ChainLoad& load) {
  BottleneckResult result = search_bottleneck(space, load);
  if (!result.feasible() || what.memory.fits(result.partition)) return result;
  return search_pairs(space, load, &what.memory, result.value);
}

SynchronousResult exact_synchronous(const SearchCase& what, const SearchSpace& space, const ChainLoad& load,
                                    const std::vector<double>& fill) {
  const double base = what.chain.compute(0, what.chain.size());
  SynchronousResult result = search_synchronous(space, load, fill, base);
  const bool fits = std::all_of(result.points.begin(), result.points.end(), [&](const SynchronousPoint& point) {
    return what.memory.fits(point.partition);
  });
  return fits ? result : search_synchronous_pairs(space, load, &what.memory, fill, base);
}

void search(const SearchCase& what, SearchSpace space, Collector& collector) {
  const ChainLoad load = make_load(what, space, what.synchronous ? LoadKind::step : LoadKind::period);
  space.scan_replicas = load.scan_replicas();
  if (what.synchronous) {
    for (const SynchronousPoint& point : exact_synchronous(what, space, load, collector.fill()).points) {
      collector.add(point.partition, load);
    }
  } else {
    collector.add(exact_bottleneck(what, space, load).partition, load);
  }
}

/// Data parallel at every width, and pipelines without replicas.
void add_baselines(const SearchCase& what, const SearchSpace& space, Collector& collector) {
  const ChainLoad load = make_load(what, space, what.synchronous ? LoadKind::step : LoadKind::period);
  const int stages = space.exact_stages;
  if (stages <= 1) {
    for (int replicas = 1; replicas <= space.replica_limit(); ++replicas) {
      if (stages == 1 && !space.may_replicate(1, replicas)) continue;
      collector.add({{0, what.chain.size(), replicas}}, load);
    }
  }
  SearchSpace straight = space;
  straight.max_replicas = 1;
  const bool replicated =
      std::any_of(space.replicas.begin(), space.replicas.end(), [](int count) { return count > 1; });
  if (!replicated) collector.add(exact_bottleneck(what, straight, load).partition, load);
}

}  // namespace

ChainLoad make_load(const SearchCase& what, const SearchSpace& space, LoadKind kind) {
  const bool bound = kind == LoadKind::step_bound || kind == LoadKind::period_bound;
  const LoadOptions options{kind, what.micro_batches, what.all_reduce_overlap,
                            bound ? what.best_link : what.link};
  return {bound ? what.bound_chain : what.chain, options, what.limited ? &what.memory : nullptr,
          space.replica_limit()};
}

CandidateList find_candidates(const SearchCase& what, const std::vector<SearchSpace>& spaces) {
  CandidateList list;
  Collector collector(what, list);
  for (const SearchSpace& space : spaces) {
    search(what, space, collector);
    add_baselines(what, space, collector);
    const ChainLoad load = make_load(what, space, what.synchronous ? LoadKind::step : LoadKind::period);
    const ChainLoad bound =
        make_load(what, space, what.synchronous ? LoadKind::step_bound : LoadKind::period_bound);
    const BottleneckResult least = search_bottleneck(space, bound);
    list.bound = least.value;
    collector.add(least.partition, load);
  }
  return list;
}

Partition find_fitting(const SearchCase& what, const SearchSpace& space) {
  const ChainLoad load = make_load(what, space, LoadKind::step_bound);
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  Partition partition = test_bottleneck(space, load, kNoLimit).partition;
  if (partition.empty() || what.memory.fits(partition)) return partition;
  return test_pairs(space, load, &what.memory, kNoLimit).partition;
}

}  // namespace pp::plan
