#include "libplan/search/exact/pair_search.h"

#include <algorithm>
#include <tuple>

#include "libplan/search/exact/front_needs.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A suffix of the layers and what the stages in front of it need to know.
struct Label {
  int devices = 0;
  int demand = 0;
  double fill = 0;
  int stages = 0;
  int end = 0;
  int replicas = 0;
  int next = -1;  ///< among the labels of `end`, one level lower

  auto rank() const { return std::tuple(fill, devices, stages, end, replicas, demand, next); }
  /// No partition in front is better off with `other`.
  bool dominates(const Label& other) const {
    const bool no_worse = devices <= other.devices && demand <= other.demand && fill <= other.fill;
    const bool equal = devices == other.devices && demand == other.demand && fill == other.fill;
    return no_worse && (!equal || rank() <= other.rank());
  }
};
using Front = std::vector<Label>;

bool is_dominated(const Front& front, const Label& label) {
  return std::ranges::any_of(front, [&](const Label& known) { return known.dominates(label); });
}

/// Not for dominated labels.
void insert(Front& front, const Label& label) {
  std::erase_if(front, [&](const Label& known) { return label.dominates(known); });
  front.push_back(label);
}

class PairProbe {
 public:
  PairProbe(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
            std::span<const double> fill, double limit)
      : space_(space),
        cost_(cost),
        memory_(memory),
        fill_(fill),
        limit_(limit),
        layers_(space.layers),
        needs_(front_needs(space, cost, limit)),
        next_(needs_.refused) {
    const std::size_t fronts = at(space.levels() + 1) * at(layers_ + 1);
    fronts_.resize(fronts);
    fewest_.assign(fronts, FrontNeeds::kNone);
    front(0, layers_).push_back({});
    fewest_[index(0, layers_)] = 0;
    reach_.assign(at(space.replica_limit() + 1), layers_);
  }

  void run() {
    for (int start = layers_ - 1; start >= 0; --start) {
      space_.stop.look();
      if (start != 0 && !space_.may_cut(start)) continue;
      if (needs_.devices[at(start)] >= space_.devices) continue;
      for (int level = 1; level <= std::max(space_.levels(), 1); ++level) {
        for (int replicas = 1; replicas <= space_.replica_limit(); ++replicas) {
          if (space_.may_replicate(level, replicas)) relax(start, level, replicas);
        }
      }
      for (int level = 0; level <= space_.levels(); ++level) {
        for (const Label& label : front(level, start))
          fewest_[index(level, start)] = std::min(fewest_[index(level, start)], label.devices);
      }
    }
  }

  Partition partition() {
    const int first = space_.exact_stages;
    int level = first;
    const Label* best = nullptr;
    for (int other = first; other <= space_.levels(); ++other) {
      for (const Label& label : front(other, 0)) {
        if (best == nullptr || label.rank() < best->rank()) best = &label, level = other;
      }
    }
    Partition result;
    for (int start = 0; best != nullptr && start < layers_;) {
      result.push_back({start, best->end, best->replicas});
      start = best->end;
      if (space_.levels() != 0) --level;
      best = &front(level, start)[at(best->next)];
    }
    return result;
  }

  double next() const { return next_; }

 private:
  std::size_t index(int level, int boundary) const { return at(level) * at(layers_ + 1) + at(boundary); }
  Front& front(int level, int boundary) { return fronts_[index(level, boundary)]; }
  bool accept(double load) {
    if (load <= limit_) return true;
    next_ = std::min(next_, load);
    return false;
  }

  /// Whether the stage keeps to the limits with nobody behind it. Larger stages cost and hold no less, so what
  /// may run ends no later when it begins earlier.
  bool may_run(int begin, int end, int replicas) {
    const bool scanned = replicas == space_.scan_replicas;
    return (scanned || accept(cost_.stage(begin, end, replicas))) && cost_.fits(begin, end, replicas, 0);
  }

  void relax(int start, int level, int replicas) {
    int& reach = reach_[at(replicas)];
    while (reach > start && !may_run(start, reach, replicas)) --reach;
    const int from = space_.levels() == 0 ? 0 : level - 1;
    const int to = space_.levels() == 0 ? 0 : level;
    const int most_later = space_.devices - replicas - needs_.devices[at(start)];
    if (most_later < 0) return;
    if (start != 0 && !accept(cost_.cut(start, replicas, CutSide::in))) return;
    for (int end = start + 1; end <= reach; ++end) {
      if (fewest_[index(from, end)] > most_later) continue;
      if (replicas == space_.scan_replicas && !accept(cost_.stage(start, end, replicas))) continue;
      if (end != layers_ && !accept(cost_.cut(end, replicas, CutSide::out))) continue;
      const Front& tails = front(from, end);
      for (std::size_t next = 0; next < tails.size(); ++next) {
        if (tails[next].devices <= most_later)
          extend({start, end, replicas}, tails[next], static_cast<int>(next), front(to, start));
      }
    }
  }

  void extend(const StageRange& stage, const Label& tail, int next, Front& into) {
    Label made = tail;
    made.devices += stage.replicas;
    if (memory_ != nullptr)
      made.demand = memory_->demand(stage.replicas, {tail.devices, tail.stages, tail.demand});
    made.stages += 1;
    made.end = stage.end;
    made.replicas = stage.replicas;
    made.next = next;
    if (stage.begin != 0 && !fill_.empty()) made.fill += fill_[at(stage.begin)];
    if (is_dominated(into, made)) return;  // before the memory, which takes longer
    const bool fits = memory_ != nullptr ? memory_->fits(stage, made.demand)
                                         : cost_.fits(stage.begin, stage.end, stage.replicas, tail.devices);
    if (fits) insert(into, made);
  }

  const SearchSpace& space_;
  const StageCost& cost_;
  const ExactMemory* memory_;
  std::span<const double> fill_;
  double limit_;
  int layers_;
  FrontNeeds needs_;
  double next_;  ///< the smallest load that was refused
  std::vector<Front> fronts_;
  std::vector<int> fewest_;  ///< per front, the devices of its smallest label; FrontNeeds::kNone: it is empty
  std::vector<int> reach_;   ///< per replica count, the furthest end that may run
};

double fill_of(const Partition& partition, std::span<const double> fill) {
  double sum = 0;
  for (auto stage = partition.rbegin(); stage != partition.rend(); ++stage) {
    if (stage->begin != 0) sum += fill[at(stage->begin)];
  }
  return sum;
}

}  // namespace

BottleneckTest test_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                          double limit) {
  PairProbe probe(space, cost, memory, {}, limit);
  probe.run();
  BottleneckTest test{probe.partition(), kInfinity, probe.next()};
  if (test.feasible()) test.value = bottleneck_value(test.partition, space.layers, cost);
  return test;
}

BottleneckResult search_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                              double lower_bound) {
  return bisect_bottleneck([&](double limit) { return test_pairs(space, cost, memory, limit); }, lower_bound);
}

FillTest least_fill_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                          std::span<const double> fill, double limit) {
  PairProbe probe(space, cost, memory, fill, limit);
  probe.run();
  FillTest test;
  test.partition = probe.partition();
  test.next = probe.next();
  if (!test.feasible()) return test;
  test.theta = bottleneck_value(test.partition, space.layers, cost);
  test.fill = fill_of(test.partition, fill);
  return test;
}

SynchronousResult search_synchronous_pairs(const SearchSpace& space, const StageCost& cost,
                                           const ExactMemory* memory, std::span<const double> fill, double base,
                                           double lower_bound, double most) {
  const auto test = [&](double limit) { return least_fill_pairs(space, cost, memory, fill, limit); };
  return enumerate_points(lower_bound, base, test, most);
}

}  // namespace pp::plan
