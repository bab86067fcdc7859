#include "libplan/search/exact/synchronous.h"

#include <algorithm>
#include <cmath>

#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/front_needs.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Suffixes that start at one boundary and use an exact number of devices.
struct Suffix {
  double fill = kInfinity;  ///< with the boundary's own, so that a stage in front only takes it over
  int stages = 0;
  int end = 0;
  int replicas = 0;

  bool known() const { return fill < kInfinity; }
  bool better_than(const Suffix& other) const {
    return fill < other.fill || (fill == other.fill && stages < other.stages);
  }
};

/// A queue of ends, best suffix in front.
struct Ends {
  std::vector<int> items;
  std::size_t head = 0;

  bool empty() const { return head == items.size(); }
  void clear() {
    items.clear();
    head = 0;
  }
  void pop_front() {
    if (++head == items.size()) clear();
  }
};

class FillProbe {
 public:
  FillProbe(const SearchSpace& space, const StageCost& cost, std::span<const double> fill, double limit)
      : space_(space),
        cost_(cost),
        fill_(fill),
        limit_(limit),
        layers_(space.layers),
        devices_(space.devices),
        needs_(front_needs(space, cost, limit).devices) {
    replica_limit_ = space.replica_limit();
    const int rows = space.levels() + 1;
    table_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(layers_ + 1) * width());
    const int queues = std::max(space.levels(), 1) * replica_limit_ * static_cast<int>(width());
    ends_.resize(static_cast<std::size_t>(queues));
    active_.resize(static_cast<std::size_t>(std::max(space.levels(), 1) * replica_limit_));
    known_.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(layers_ + 1));
    known_[static_cast<std::size_t>(layers_)] = {0};
    reach_.assign(static_cast<std::size_t>(replica_limit_) + 1, layers_);
    suffix(0, layers_, 0).fill = 0;
  }

  FillTest run() {
    for (int start = layers_ - 1; start >= 0; --start) {
      space_.stop.look();
      for (int replicas = 1; replicas <= replica_limit_; ++replicas) shrink(start, replicas);
      if (space_.levels() == 0) {
        relax(start, 1, 0, 0);
      } else {
        for (int level = 1; level <= space_.levels(); ++level) relax(start, level, level - 1, level);
      }
    }
    return walk();
  }

 private:
  std::size_t width() const { return static_cast<std::size_t>(devices_) + 1; }
  Suffix& suffix(int level, int boundary, int used) {
    const auto row = static_cast<std::size_t>(level) * static_cast<std::size_t>(layers_ + 1);
    return table_[(row + static_cast<std::size_t>(boundary)) * width() + static_cast<std::size_t>(used)];
  }
  Ends& ends(int level, int replicas, int used) {
    const auto row = static_cast<std::size_t>((level - 1) * replica_limit_ + replicas - 1);
    return ends_[row * width() + static_cast<std::size_t>(used)];
  }
  std::vector<int>& active(int level, int replicas) {
    return active_[static_cast<std::size_t>((level - 1) * replica_limit_ + replicas - 1)];
  }
  std::vector<int>& known(int level, int boundary) {
    return known_[static_cast<std::size_t>(level) * static_cast<std::size_t>(layers_ + 1) +
                  static_cast<std::size_t>(boundary)];
  }
  int& reach(int replicas) { return reach_[static_cast<std::size_t>(replicas)]; }

  /// Moves the furthest end whose stage load is within the limit; the same for every level and device count.
  void shrink(int start, int replicas) {
    if (replicas == space_.scan_replicas) return;
    while (reach(replicas) > start && cost_.stage(start, reach(replicas), replicas) > limit_) --reach(replicas);
  }

  void relax(int start, int level, int from, int to) {
    const bool open = start == 0 || space_.may_cut(start);
    for (int replicas = 1; replicas <= replica_limit_; ++replicas) {
      if (!space_.may_replicate(level, replicas)) continue;
      const bool enters = open && (start == 0 || cost_.cut(start, replicas, CutSide::in) <= limit_);
      if (replicas == space_.scan_replicas) {
        if (enters) scan(start, from, to, replicas);
        continue;
      }
      const int end = start + 1;
      const bool leaves =
          end == layers_ || (space_.may_cut(end) && cost_.cut(end, replicas, CutSide::out) <= limit_);
      if (leaves) push(level, replicas, end, from);
      std::erase_if(active(level, replicas), [&](int used) {
        return !slide(start, level, from, to, {replicas, used, enters});
      });
    }
    if (open) prune(start, to);
    if (open && start != 0) charge(start, to);
  }

  /// Boundary `end` becomes a possible end of stages with `replicas` devices.
  void push(int level, int replicas, int end, int from) {
    for (const int used : known(from, end)) {
      if (used + replicas > devices_) break;
      Ends& queue = ends(level, replicas, used);
      if (queue.empty()) active(level, replicas).push_back(used);
      while (!queue.empty() && !suffix(from, queue.items.back(), used).better_than(suffix(from, end, used))) {
        queue.items.pop_back();
      }
      if (queue.empty()) queue.clear();
      queue.items.push_back(end);
    }
  }

  struct Step {
    int replicas;
    int used;
    bool enters;
  };
  /// False: no end is left for this device count.
  bool slide(int start, int level, int from, int to, const Step& step) {
    Ends& queue = ends(level, step.replicas, step.used);
    while (!queue.empty()) {
      const int end = queue.items[queue.head];
      if (end <= reach(step.replicas) && cost_.fits(start, end, step.replicas, step.used)) break;
      queue.pop_front();
    }
    if (queue.empty()) return false;
    if (step.enters) offer(start, queue.items[queue.head], from, to, step.replicas, step.used);
    return true;
  }

  void scan(int start, int from, int to, int replicas) {
    for (int end = start + 1; end <= layers_; ++end) {
      if (end != layers_ && (!space_.may_cut(end) || cost_.cut(end, replicas, CutSide::out) > limit_)) continue;
      if (cost_.stage(start, end, replicas) > limit_) continue;
      for (const int used : known(from, end)) {
        if (used + replicas <= devices_ && cost_.fits(start, end, replicas, used)) {
          offer(start, end, from, to, replicas, used);
        }
      }
    }
  }

  void offer(int start, int end, int from, int to, int replicas, int used) {
    const Suffix& tail = suffix(from, end, used);
    const Suffix made{tail.fill, tail.stages + 1, end, replicas};
    Suffix& best = suffix(to, start, used + replicas);
    const bool tie = made.fill == best.fill && made.stages == best.stages;
    if (made.better_than(best) || (tie && made.end < best.end)) best = made;
  }

  /// A suffix that uses more devices than another and fills no faster is of no use to anybody, nor is one that
  /// leaves too few for the layers in front.
  void prune(int start, int level) {
    double least = kInfinity;
    const int most = devices_ - needs_[static_cast<std::size_t>(start)];
    for (int used = 1; used <= devices_; ++used) {
      Suffix& one = suffix(level, start, used);
      if (used <= most && one.fill < least) {
        least = one.fill;
        known(level, start).push_back(used);
      } else {
        one.fill = kInfinity;
      }
    }
  }

  /// Boundary `start` becomes a cut for whoever stands in front of these suffixes.
  void charge(int start, int level) {
    for (const int used : known(level, start)) {
      suffix(level, start, used).fill += fill_[static_cast<std::size_t>(start)];
    }
  }

  FillTest walk() {
    int level = space_.exact_stages;
    int used = 1;
    const int first_level = space_.exact_stages != 0 ? level : 0;
    for (int other = first_level; other <= space_.levels(); ++other) {
      for (int count = 1; count <= devices_; ++count) {
        const Suffix& found = suffix(other, 0, count);
        const Suffix& best = suffix(level, 0, used);
        const bool fewer =
            found.fill == best.fill && (count < used || (count == used && found.stages < best.stages));
        if (found.fill < best.fill || fewer) level = other, used = count;
      }
    }
    FillTest test;
    if (!suffix(level, 0, used).known()) return test;
    test.fill = suffix(level, 0, used).fill;
    for (int start = 0; start < layers_;) {
      const Suffix& stage = suffix(level, start, used);
      test.partition.push_back({start, stage.end, stage.replicas});
      start = stage.end;
      used -= stage.replicas;
      if (space_.levels() != 0) --level;
    }
    test.theta = bottleneck_value(test.partition, layers_, cost_);
    return test;
  }

  const SearchSpace& space_;
  const StageCost& cost_;
  std::span<const double> fill_;
  double limit_;
  int layers_;
  int devices_;
  std::vector<int> needs_;  ///< front_needs()
  int replica_limit_ = 0;
  std::vector<Suffix> table_;
  std::vector<Ends> ends_;
  std::vector<std::vector<int>>
      active_;  ///< per level and replica count, the device counts with ends in their queue
  std::vector<std::vector<int>>
      known_;               ///< per level and boundary, the device counts of useful suffixes, ascending
  std::vector<int> reach_;  ///< per replica count, the furthest end within the limit
};

/// A point not far above the least load, in steps that double: a probe is the dearer the more it admits.
FillTest first_above(double theta_least, const std::function<FillTest(double)>& test) {
  constexpr double kFirstStep = 1. / 64;
  FillTest point = test(theta_least);
  for (double step = kFirstStep; !point.feasible() && point.next < kInfinity; step *= 2)
    point = test(point.next * (1 + step));
  return point;
}

/// A point with an objective of at most `most`.
FillTest first_within(double most, double base, const std::function<FillTest(double)>& test) {
  FillTest point = test(most - base);
  while (point.feasible() && point.theta + (base + point.fill) > most)  // what fills less has a larger theta
    point = test(std::min(std::nextafter(point.theta, 0.0), most - base - point.fill));
  return point;
}

}  // namespace

FillTest least_fill(const SearchSpace& space, const StageCost& cost, std::span<const double> fill,
                    double limit) {
  return FillProbe(space, cost, fill, limit).run();
}

SynchronousResult enumerate_points(double theta_least, double base, const std::function<FillTest(double)>& test,
                                   double most) {
  SynchronousResult result;
  const FillTest first = most < kInfinity ? first_within(most, base, test) : first_above(theta_least, test);
  if (!first.feasible()) return result;
  FillTest point = test(first.theta + first.fill);  // a larger theta alone exceeds the objective of `first`
  while (point.feasible()) {
    result.objective = std::min(result.objective, point.theta + (base + point.fill));
    const double theta = point.theta;
    const double fill = point.fill;
    result.points.push_back({std::move(point.partition), theta, fill});
    if (theta_least + (base + fill) >= result.objective) break;
    point = test(std::nextafter(theta, 0.0));
  }
  return result;
}

SynchronousResult search_synchronous(const SearchSpace& space, const StageCost& cost,
                                     std::span<const double> fill, double base) {
  const BottleneckResult least = search_bottleneck(space, cost);
  if (!least.feasible()) return {};
  return enumerate_points(least.value, base,
                          [&](double limit) { return least_fill(space, cost, fill, limit); });
}

}  // namespace pp::plan
