// One probe of the down-sets goes from the full set back and keeps, per set, the fewest devices that run the
// rest.
#include "libplan/search/exact/any_order.h"

#include <algorithm>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kNone = std::numeric_limits<int>::max();

class AnyOrderProbe {
 public:
  AnyOrderProbe(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, double limit)
      : lattice_(lattice),
        space_(space),
        cost_(cost),
        limit_(limit),
        levels_(space.levels()),
        counts_(space, cost),
        falls_(falling(cost, space.devices)),
        best_(at(levels_ + 1), std::vector<Entry>(lattice.sets.size())) {
    entry(0, last()).devices = 0;
  }

  BottleneckTest run() {
    for (int begin = last() - 1; begin >= 0; --begin) {
      space_.stop.look();
      if (levels_ == 0) relax(begin, 1, 0, 0);
      for (int level = 1; level <= levels_; ++level) relax(begin, level, level - 1, level);
    }
    return walk();
  }

 private:
  /// The fewest devices that run what a set lacks, and the stage that begins there.
  struct Entry {
    int devices = kNone;
    int end = 0;
    int replicas = 0;
  };

  int last() const { return lattice_.size() - 1; }
  Entry& entry(int level, int set) { return best_[at(level)][at(set)]; }

  bool accept(double load) {
    if (load <= limit_) return true;
    next_ = std::min(next_, load);
    return false;
  }

  void relax(int begin, int level, int from, int to) {
    Entry& best = entry(to, begin);
    for (int c = 0; c < counts_.size() && counts_[c] < best.devices; ++c) {
      const int replicas = counts_[c];
      if (!space_.may_replicate(level, replicas)) continue;
      if (begin != 0 && !accept(cost_.cut(begin, {0, replicas}, CutSide::in))) continue;
      extend(begin, from, replicas, best);
    }
  }

  /// From the farthest end within the limit back to a waist that serves: no set in front of that needs fewer
  /// devices behind it.
  void extend(int begin, int from, int replicas, Entry& best) {
    for (int end = farthest(begin, replicas); end > begin; --end) {
      const bool served = serve(begin, end, from, replicas, best);
      if (served && levels_ == 0 && std::ranges::binary_search(lattice_.waists, end)) return;
    }
  }

  /// Behind it no set is within the limit, or fits: in front of the first waist that is not, by bisection.
  int farthest(int begin, int replicas) {
    const std::vector<int>& waists = lattice_.waists;
    const auto behind = std::ranges::upper_bound(waists, begin);
    const auto beyond = std::partition_point(behind, waists.end(), [&](int waist) {
      return cost_.fits(begin, waist, {0, replicas}) &&
             (falls_[at(replicas)] || accept(cost_.stage(begin, waist, {0, replicas})));
    });
    return beyond == waists.end() ? last() : *beyond - 1;
  }

  bool serve(int begin, int end, int from, int replicas, Entry& best) {
    const int behind = entry(from, end).devices;
    if (behind == kNone || behind + replicas > space_.devices) return false;
    if (!lattice_.sets[at(end)].contains(lattice_.sets[at(begin)])) return false;
    if (end != last() && !accept(cost_.cut(end, {0, replicas}, CutSide::out))) return false;
    if (!accept(cost_.stage(begin, end, {0, replicas})) || !cost_.fits(begin, end, {behind, replicas}))
      return false;
    if (behind + replicas < best.devices) best = {behind + replicas, end, replicas};
    return true;
  }

  BottleneckTest walk() {
    int level = space_.exact_stages;
    if (space_.exact_stages == 0) {
      for (int other = 0; other <= levels_; ++other) {
        if (entry(other, 0).devices < entry(level, 0).devices) level = other;
      }
    }
    BottleneckTest test;
    test.next = next_;
    if (entry(level, 0).devices == kNone) return test;
    for (int begin = 0; begin < last();) {
      const Entry& stage = entry(level, begin);
      test.partition.push_back({begin, stage.end, stage.replicas});
      begin = stage.end;
      if (levels_ != 0) --level;
    }
    test.value = largest_load(test.partition, last(), cost_);
    return test;
  }

  const Lattice& lattice_;
  const SearchSpace& space_;
  const StageCost& cost_;
  double limit_;
  int levels_;
  ReplicaCounts counts_;
  std::vector<char> falls_;  ///< by replicas: StageCost::may_fall()
  double next_ = kInfinity;
  std::vector<std::vector<Entry>> best_;
};

}  // namespace

BottleneckTest test_any_order(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                              double limit) {
  return AnyOrderProbe(lattice, space, cost, limit).run();
}

BottleneckResult search_any_order(const Lattice& lattice, const SearchSpace& space, const StageCost& cost) {
  return bisect_bottleneck([&](double limit) { return test_any_order(lattice, space, cost, limit); }, 0);
}

double any_order_bound(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                       double lower_bound, double enough) {
  return bisect_bound([&](double limit) { return test_any_order(lattice, space, cost, limit); }, lower_bound,
                      enough);
}

}  // namespace pp::plan
