#include "libplan/search/exact/bottleneck.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "libplan/cost/constants.h"
#include "libplan/search/exact/bisect.h"
#include "libplan/search/exact/contracted.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Devices in the upper half, stages in the lower: compares as (devices, stages), both up to 2^31 - 1.
using Key = std::int64_t;
constexpr Key kNoKey = std::numeric_limits<Key>::max();
constexpr Key key_of_stage(int replicas) { return (Key{replicas} << 32) + 1; }
constexpr int devices_of(Key key) { return static_cast<int>(key >> 32); }

/// What is known about one start: the best key and the stage that begins there.
struct Entry {
  Key key = kNoKey;
  int end = 0;
  int replicas = 0;
};

/// Possible ends of a stage, nearest at the back, smallest key at the front; `head` moves, storage is not
/// freed.
struct Window {
  int head = 0;
  int tail = 0;
  int seen = 0;  ///< ends from here on were looked at; 0: none yet
  bool empty() const { return head == tail; }
};

/// One probe from the back, over devices that are alike. Level l holds suffixes of l stages when stage counts
/// matter, otherwise level 0 holds all.
class BottleneckProbe {
 public:
  BottleneckProbe(const SearchSpace& space, const StageCost& cost, double limit)
      : space_(space),
        cost_(cost),
        limit_(limit),
        layers_(space.layers),
        levels_(space.levels()),
        counts_(space, cost),
        falls_(falling(cost, space.devices)) {
    const auto rows = at(levels_ + 1);
    const auto width = at(layers_ + 1);
    best_.resize(rows * width);
    const auto windows = at(std::max(levels_, 1) * counts_.size());
    windows_.resize(windows);
    ends_.resize(windows * width);
    entry(0, layers_).key = 0;
  }

  BottleneckTest run() {
    for (int start = layers_ - 1; start >= 0; --start) {
      space_.stop.look();
      if (levels_ == 0) {
        relax(start, 1, 0, 0);
      } else {
        const int first = std::max(1, space_.exact_stages - start);  // a layer each for those in front
        const int last = std::min(levels_, layers_ - start);
        for (int level = first; level <= last; ++level) relax(start, level, level - 1, level);
      }
    }
    return walk();
  }

 private:
  Entry& entry(int level, int boundary) { return best_[at(level) * at(layers_ + 1) + at(boundary)]; }

  void relax(int start, int level, int from, int to) {
    Entry best;
    for (int c = 0; c < counts_.size(); ++c) {
      const int replicas = counts_[c];
      if (key_of_stage(replicas) > best.key) break;  // alone more than is needed
      if (!space_.may_replicate(level, replicas)) continue;
      const Entry found =
          falls_[at(replicas)] ? scan(start, from, replicas) : slide(start, level, from, replicas);
      if (found.key < best.key || (found.key == best.key && found.key != kNoKey && found.end < best.end))
        best = found;
    }
    if (best.key != kNoKey) entry(to, start) = best;
  }

  /// The stage may start here: its boundary is allowed and its incoming cut within the limit.
  bool starts(int start, int replicas) {
    if (start == 0) return true;
    return space_.may_cut(start) && accept(cost_.cut(start, {0, replicas}, CutSide::in));
  }
  bool ends(int end, int from, int replicas) {
    const Key key = entry(from, end).key;
    if (key == kNoKey || devices_of(key) + replicas > space_.devices) return false;
    return end == layers_ || accept(cost_.cut(end, {0, replicas}, CutSide::out));
  }
  /// Refused loads are the candidates for the next lower bound.
  bool accept(double load) {
    if (load <= limit_) return true;
    next_ = std::min(next_, load);
    return false;
  }

  Entry slide(int start, int level, int from, int replicas) {
    const auto which = at((level - 1) * counts_.size() + counts_.place(replicas));
    Window& window = windows_[which];
    int* ends_of = ends_.data() + which * at(layers_ + 1);
    if (window.seen != start + 2) catch_up(window, start, replicas);
    for (int end = window.seen - 1; end > start; --end) {
      if (!ends(end, from, replicas)) continue;
      const Key key = entry(from, end).key;
      while (!window.empty() && entry(from, ends_of[window.tail - 1]).key >= key) --window.tail;
      if (window.empty()) window.head = window.tail = 0;
      ends_of[window.tail++] = end;
    }
    window.seen = start + 1;
    while (!window.empty()) {
      const int end = ends_of[window.head];
      const DeviceSpan span{devices_of(entry(from, end).key), replicas};
      if (accept(cost_.stage(start, end, span)) && cost_.fits(start, end, span)) break;
      ++window.head;
    }
    if (window.empty()) {
      window.head = window.tail = 0;
      return {};
    }
    if (!starts(start, replicas)) return {};
    const int end = ends_of[window.head];
    return {entry(from, end).key + key_of_stage(replicas), end, replicas};
  }

  /// Where starts were left out: of the ends that nobody looked at those within the limit, by bisection.
  void catch_up(Window& window, int start, int replicas) {
    int within = start + 1, beyond = window.seen == 0 ? layers_ + 1 : window.seen;
    while (beyond - within > 1) {
      const int middle = within + (beyond - within) / 2;
      (accept(cost_.stage(start, middle, {0, replicas})) ? within : beyond) = middle;
    }
    window.seen = beyond;
  }

  /// The same without relying on monotone stage loads: every end.
  Entry scan(int start, int from, int replicas) {
    if (!starts(start, replicas)) return {};
    Entry best;
    for (int end = start + 1; end <= layers_; ++end) {
      const Key tail = entry(from, end).key;
      const DeviceSpan span{devices_of(tail), replicas};
      if (!ends(end, from, replicas) || !accept(cost_.stage(start, end, span))) continue;
      if (!cost_.fits(start, end, span)) continue;
      if (tail + key_of_stage(replicas) < best.key) best = {tail + key_of_stage(replicas), end, replicas};
    }
    return best;
  }

  BottleneckTest walk() {
    int level = space_.exact_stages;
    if (space_.exact_stages == 0) {
      for (int other = 0; other <= levels_; ++other) {
        if (entry(other, 0).key < entry(level, 0).key) level = other;
      }
    }
    BottleneckTest test;
    test.next = next_;
    if (entry(level, 0).key == kNoKey) return test;
    for (int start = 0; start < layers_;) {
      const Entry& stage = entry(level, start);
      test.partition.push_back({start, stage.end, stage.replicas});
      start = stage.end;
      if (levels_ != 0) --level;
    }
    test.value = largest_load(test.partition, layers_, cost_);
    return test;
  }

  const SearchSpace& space_;
  const StageCost& cost_;
  double limit_;
  int layers_;
  int levels_;
  ReplicaCounts counts_;
  std::vector<char> falls_;  ///< by replicas: StageCost::may_fall()
  double next_ = kInfinity;
  std::vector<Entry> best_;
  std::vector<Window> windows_;
  std::vector<int> ends_;
};

}  // namespace

BottleneckTest test_bottleneck(const SearchSpace& space, const StageCost& cost, double limit) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, nullptr, [&](const SearchSpace& segments, const StageCost& of, auto*) {
      return test_bottleneck(segments, of, limit);
    });
  return BottleneckProbe(space, cost, limit).run();
}

BottleneckResult search_bottleneck(const SearchSpace& space, const StageCost& cost, double lower_bound) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, nullptr, [&](const SearchSpace& segments, const StageCost& of, auto*) {
      return search_bottleneck(segments, of, lower_bound);
    });
  const auto test = [&](double limit) { return test_bottleneck(space, cost, limit); };
  if (lower_bound > 0) return bisect_bottleneck(test, lower_bound);
  const BottleneckTest fewest = test(kInfinity);
  if (!fewest.feasible()) return {{}, kInfinity, 1};
  // As if the others took an equal part of it: that seldom works, and then the optimum is not far above.
  const BottleneckTest shared = test(fewest.value * device_count(fewest.partition) / space.devices);
  BottleneckResult result = bisect_bottleneck(test, shared.feasible() ? 0 : shared.next);
  result.tests += 2;
  return result;
}

double bottleneck_bound(const SearchSpace& space, const StageCost& cost, double enough) {
  return bisect_bound([&](double limit) { return test_bottleneck(space, cost, limit); }, 0, enough);
}

double bisect_bound(const std::function<BottleneckTest(double limit)>& probe, double lower_bound,
                    double enough) {
  const BottleneckTest below = probe(std::nextafter(enough, 0.0));
  return below.feasible() ? bisect_bottleneck(probe, lower_bound).value : below.next;
}

BottleneckResult bisect_bottleneck(const std::function<BottleneckTest(double limit)>& probe,
                                   double lower_bound) {
  int probes = 0;
  BottleneckTest best = bisect<BottleneckTest>(probe, lower_bound, probes);
  if (!best.feasible()) return {{}, kInfinity, probes};
  return {std::move(best.partition), best.value, probes};
}

}  // namespace pp::plan
