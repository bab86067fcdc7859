#include "libplan/search/exact/ordered_search.h"

#include <algorithm>
#include <tuple>

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// A suffix of the layers on the first devices of the list.
struct Label {
  double sum = 0;
  int demand = 0;  ///< what its first stage wants in flight in front of it; 0 without exact memory
  int stages = 0;
  int end = 0;  ///< of that stage, and its devices
  int replicas = 0;
  int next = -1;  ///< among the labels of `end`, one level lower

  auto rank() const { return std::tuple(sum, stages, end, replicas, demand, next); }
  /// No partition in front is better off with `other`.
  bool dominates(const Label& other) const {
    if (sum > other.sum || demand > other.demand) return false;
    return sum < other.sum || demand < other.demand || rank() <= other.rank();
  }
};
using Front = std::vector<Label>;

void insert(Front& front, const Label& label) {
  for (const Label& known : front) {
    if (known.dominates(label)) return;
  }
  std::erase_if(front, [&](const Label& known) { return label.dominates(known); });
  front.push_back(label);
}

/// Ends of a stage on one span, the furthest with the least key in front.
struct Ends {
  struct Item {
    int end;
    double key;  ///< sum of the suffix from here and the passage of everything in front
  };
  std::vector<Item> items;
  std::size_t head = 0;

  bool empty() const { return head == items.size(); }
  void push(int end, double key) {
    while (!empty() && items.back().key >= key) items.pop_back();
    items.push_back({end, key});
  }
  void pop() {
    if (++head == items.size()) items.clear(), head = 0;
  }
};

class Probe {
 public:
  Probe(const SearchSpace& space, const OrderedCost& cost, const OrderedMemory* memory, double limit)
      : space_(space),
        cost_(cost),
        memory_(memory),
        limit_(limit),
        layers_(space.layers),
        devices_(space.devices) {
    fronts_.resize(at(space.levels() + 1) * at(layers_ + 1) * at(devices_ + 1));
    ends_.resize(at(std::max(space.levels(), 1)) * at(devices_) * at(devices_));
    front(0, layers_, 0).push_back({});
  }

  OrderedTest run() {
    for (int start = layers_ - 1; start >= 0; --start) {
      space_.stop.look();
      for (int level = 1; level <= std::max(space_.levels(), 1); ++level) {
        for (int first = 0; first < devices_; ++first) relax(start, level, first);
      }
    }
    return walk();
  }

 private:
  Front& front(int level, int boundary, int devices) {
    return fronts_[(at(level) * at(layers_ + 1) + at(boundary)) * at(devices_ + 1) + at(devices)];
  }
  Ends& ends(int level, DeviceSpan span) {
    return ends_[(at(level - 1) * at(devices_) + at(span.first)) * at(devices_) + at(span.count - 1)];
  }
  /// Without stage counts all suffixes share level 0.
  int from(int level) const { return space_.levels() == 0 ? 0 : level - 1; }
  int to(int level) const { return space_.levels() == 0 ? 0 : level; }

  /// Refused loads are the candidates for the next lower bound.
  bool accept(double load) {
    if (load <= limit_) return true;
    next_ = std::min(next_, load);
    return false;
  }
  bool starts(int start, DeviceSpan span) {
    if (start == 0) return true;
    return span.end() < devices_ && space_.may_cut(start) && accept(cost_.cut(start, span, CutSide::in));
  }
  bool stops(int end, DeviceSpan span) {
    return end == layers_ || (space_.may_cut(end) && accept(cost_.cut(end, span, CutSide::out)));
  }

  /// All stages that begin at `start` with the devices from `first` on.
  void relax(int start, int level, int first) {
    const int most = std::min(space_.replica_limit(), devices_ - first);
    for (int count = 1; count <= most; ++count) {
      const DeviceSpan span{first, count};
      if (!space_.may_replicate(level, count) || !cost_.considers(span)) continue;
      if (memory_ != nullptr || count == space_.scan_replicas) {
        scan(start, level, span);
      } else {
        slide(start, level, span);
      }
    }
  }

  /// Stage loads and memory only grow towards the front: an end that fails once is gone for good.
  void slide(int start, int level, DeviceSpan span) {
    Ends& queue = ends(level, span);
    const Front& tails = front(from(level), start + 1, span.first);
    if (!tails.empty() && stops(start + 1, span))
      queue.push(start + 1, joined(start + 1, span, tails.front()) + cost_.passage(start + 1, span));
    while (!queue.empty()) {
      const int end = queue.items[queue.head].end;
      if (accept(cost_.stage(start, end, span)) && cost_.fits(start, end, span)) break;
      queue.pop();
    }
    if (!queue.empty() && starts(start, span)) extend(start, queue.items[queue.head].end, level, span);
  }

  /// Every end.
  void scan(int start, int level, DeviceSpan span) {
    bool open = false;  // the cut in front is looked at once there is something behind it
    for (int end = start + 1; end <= layers_; ++end) {
      if (front(from(level), end, span.first).empty()) continue;
      if (!accept(cost_.stage(start, end, span))) {
        if (span.count == space_.scan_replicas) continue;
        break;
      }
      if (!stops(end, span)) continue;
      if (!open && !starts(start, span)) return;
      open = true;
      extend(start, end, level, span);
    }
  }

  /// The sum of a suffix whose first stage begins at `end`, seen from the stage in front of it.
  double joined(int end, DeviceSpan span, const Label& tail) const {
    return end == layers_ ? 0 : tail.sum + cost_.fill(end, span);
  }

  void extend(int start, int end, int level, DeviceSpan span) {
    const double passage = cost_.passage(end, span) - cost_.passage(start, span);
    const Front& tails = front(from(level), end, span.first);
    for (std::size_t next = 0; next < tails.size(); ++next) {
      Label made{joined(end, span, tails[next]) + passage,
                 0,
                 tails[next].stages + 1,
                 end,
                 span.count,
                 static_cast<int>(next)};
      if (memory_ != nullptr) {
        made.demand = memory_->demand(span, {span.first, tails[next].stages, tails[next].demand});
        if (!memory_->fits({start, end, span.count}, span, made.demand)) continue;
      } else if (!cost_.fits(start, end, span)) {
        continue;
      }
      insert(front(to(level), start, span.end()), made);
    }
  }

  OrderedTest walk() {
    OrderedTest test;
    test.next = next_;
    const Label* best = nullptr;
    int level = 0;
    int used = 0;
    for (int devices = 1; devices <= devices_; ++devices) {
      for (int other = space_.exact_stages; other <= space_.levels(); ++other) {
        for (const Label& label : front(other, 0, devices)) {
          const bool better = best == nullptr || label.sum < best->sum ||
                              (label.sum == best->sum && devices == used && label.rank() < best->rank());
          if (better) best = &label, level = other, used = devices;
        }
      }
    }
    if (best == nullptr) return test;
    for (int start = 0; start < layers_;) {
      test.partition.push_back({start, best->end, best->replicas});
      start = best->end;
      used -= best->replicas;
      if (space_.levels() != 0) --level;
      best = &front(level, start, used)[at(best->next)];
    }
    test.value = ordered_value(test.partition, layers_, cost_);
    test.sum = ordered_sum(test.partition, cost_);
    return test;
  }

  const SearchSpace& space_;
  const OrderedCost& cost_;
  const OrderedMemory* memory_;
  double limit_;
  int layers_;
  int devices_;
  double next_ = kInfinity;
  std::vector<Front> fronts_;  ///< per level, boundary and number of devices
  std::vector<Ends> ends_;     ///< per level and span
};

}  // namespace

double ordered_value(const Partition& partition, int layers, const OrderedCost& cost) {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  double value = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const auto& [begin, end, replicas] = partition[s];
    value = std::max(value, cost.stage(begin, end, spans[s]));
    if (begin != 0) value = std::max(value, cost.cut(begin, spans[s], CutSide::in));
    if (end != layers) value = std::max(value, cost.cut(end, spans[s], CutSide::out));
  }
  return value;
}

double ordered_sum(const Partition& partition, const OrderedCost& cost) {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  double sum = 0;
  for (std::size_t s = partition.size(); s-- > 0;) {
    const auto& [begin, end, replicas] = partition[s];
    if (spans[s].first != 0) sum += cost.fill(end, spans[s]);
    sum += cost.passage(end, spans[s]) - cost.passage(begin, spans[s]);
  }
  return sum;
}

OrderedTest test_ordered(const SearchSpace& space, const OrderedCost& cost, const OrderedMemory* memory,
                         double limit) {
  return Probe(space, cost, memory, limit).run();
}

BottleneckResult search_ordered(const SearchSpace& space, const OrderedCost& cost,
                                const OrderedMemory* memory) {
  const auto probe = [&](double limit) {
    OrderedTest test = test_ordered(space, cost, memory, limit);
    return BottleneckTest{std::move(test.partition), test.value, test.next};
  };
  return bisect_bottleneck(probe, 0);
}

SynchronousResult search_ordered_synchronous(const SearchSpace& space, const OrderedCost& cost,
                                             const OrderedMemory* memory, double base) {
  const BottleneckResult least = search_ordered(space, cost, memory);
  if (!least.feasible()) return {};
  return enumerate_points(least.value, base, [&](double limit) {
    OrderedTest test = test_ordered(space, cost, memory, limit);
    return FillTest{std::move(test.partition), test.value, std::max(0.0, test.sum - base)};
  });
}

}  // namespace pp::plan
