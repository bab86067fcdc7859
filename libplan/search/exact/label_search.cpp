#include "libplan/search/exact/label_search.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>

#include "libplan/search/exact/contracted.h"
#include "libplan/search/exact/front_needs.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kNoLabel = -1;

/// A suffix of the layers, and what the stages in front of it need to know.
struct Label {
  double sum = 0;
  int devices = 0;
  int demand = 0;  ///< what its first stage wants in flight in front of it; 0 without exact memory
  int stages = 0;
  int end = 0;  ///< of that stage, and its devices
  int replicas = 0;
  int next = kNoLabel;     ///< the label of `end`
  int sibling = kNoLabel;  ///< in the same front

  auto rank() const { return std::tie(sum, devices, stages, end, replicas, demand, next); }
  /// No partition in front is better off with `other`.
  bool dominates(const Label& other) const {
    if (sum > other.sum || devices > other.devices || demand > other.demand) return false;
    const bool equal = devices == other.devices && demand == other.demand && sum == other.sum;
    return !equal || rank() <= other.rank();
  }
};

/// Ends of a stage on one span, nearest at the back, that of the best suffix in front.
class Ends {
 public:
  struct Item {
    double key;  ///< the sum of the suffix from here and the passage of everything in front
    int end;
    int label;
    int stages;
    bool operator<(const Item& other) const {
      return std::tie(key, stages) < std::tie(other.key, other.stages);
    }
  };
  bool empty() const { return head_ == items_.size(); }
  const Item& front() const { return items_[head_]; }
  void push(const Item& item) {
    while (!empty() && !(items_.back() < item)) items_.pop_back();
    if (empty()) clear();
    items_.push_back(item);
  }
  void pop() {
    if (++head_ == items_.size()) clear();
  }

 private:
  void clear() { items_.clear(), head_ = 0; }
  std::vector<Item> items_;
  std::size_t head_ = 0;
};

/// What a boundary says to the stages on one span; asked once for every boundary.
struct Side {
  int boundary = kNoLabel;
  bool open = false;
  double sum = 0;
};

/// The furthest end of a stage on one span that is within the limits, for the last start that was asked.
struct Reach {
  int start = kNoLabel;
  int end = 0;
};

class Probe {
 public:
  Probe(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory, double limit, Sums sums)
      : space_(space),
        cost_(cost),
        memory_(memory),
        limit_(limit),
        sums_(sums),
        layers_(space.layers),
        devices_(space.devices),
        levels_(space.levels()),
        counts_(space, cost),
        places_(space.devices / counts_.unit()),
        uniform_(cost.uniform()),
        falls_(falling(cost, space.devices)) {
    needs_.assign(at(layers_), 0);
    if (uniform_) {
      FrontNeeds needs = front_needs(space, cost, counts_, limit);
      needs_ = std::move(needs.devices);
      next_ = needs.refused;
    }
    const std::size_t spans = at(counts_.size()) * (uniform_ ? 1 : at(places_));
    heads_.assign(at(levels_ + 1) * at(layers_ + 1) * rows(), kNoLabel);
    waiting_.resize(at(std::max(levels_, 1)) * at(counts_.size()));
    queues_.assign(waiting_.size() * at(places_ + 1), kNoLabel);
    in_.resize(spans);
    out_.resize(spans * out_row());
    reach_.assign(spans, {kNoLabel, layers_});
    if (together()) fewest_.assign(heads_.size(), FrontNeeds::kNone);
    labels_.emplace_back();
    head(0, layers_, 0) = 0;
    if (together()) fewest_[index(0, layers_, 0)] = 0;
    known_.resize(at(levels_ + 1) * at(layers_ + 1));
    known(0, layers_) = {0};
  }

  PointTest run() {
    for (int start = layers_ - 1; start >= 0; --start) {
      space_.stop.look();
      for (int level = 1; level <= std::max(levels_, 1); ++level) relax(start, level);
    }
    return walk();
  }

 private:
  /// Fronts of a boundary: one of all labels where the exact memory makes many of them, else one for every
  /// number of devices, with one label each where these are alike.
  bool together() const { return uniform_ && memory_ != nullptr; }
  std::size_t rows() const { return together() ? 1 : at(places_ + 1); }
  std::size_t index(int level, int boundary, int devices) const {
    return (at(level) * at(layers_ + 1) + at(boundary)) * rows() +
           (together() ? 0 : at(devices / counts_.unit()));
  }
  int& head(int level, int boundary, int devices) { return heads_[index(level, boundary, devices)]; }
  /// Boundaries whose answers to stops() are kept: with every end looked at again and again, all.
  std::size_t out_row() const { return together() ? at(layers_ + 1) : 1; }
  /// The numbers of devices of a boundary's fronts, ascending.
  std::vector<int>& known(int level, int boundary) {
    return known_[at(level) * at(layers_ + 1) + at(boundary)];
  }
  Label& label(int index) { return labels_[at(index)]; }
  std::size_t slot(DeviceSpan span) const {
    const int first = uniform_ ? 0 : span.first / counts_.unit();
    return at(first * counts_.size() + counts_.place(span.count));
  }
  /// Without stage counts all suffixes share level 0.
  int from(int level) const { return levels_ == 0 ? 0 : level - 1; }
  int to(int level) const { return levels_ == 0 ? 0 : level; }

  /// Refused loads are the candidates for the next lower bound.
  bool accept(double load) {
    if (load <= limit_) return true;
    next_ = std::min(next_, load);
    return false;
  }
  bool may_run(int start, int end, DeviceSpan span) {
    const bool light = falls_[at(span.count)] || accept(cost_.stage(start, end, span));
    return light && cost_.fits(start, end, {uniform_ ? 0 : span.first, span.count});
  }
  /// Larger stages cost and hold no less, so what may run ends no later when it begins earlier.
  int furthest(int start, DeviceSpan span) {
    Reach& reach = reach_[slot(span)];
    if (reach.start == start) return reach.end;
    reach.start = start;
    while (reach.end > start && !may_run(start, reach.end, span)) --reach.end;
    return reach.end;
  }
  /// A stage may begin at `start`; with the passage of all in front of it.
  Side begins(int start, DeviceSpan span) {
    if (start != 0 && span.end() >= devices_) return {};
    Side& side = in_[slot(span)];
    if (side.boundary == start) return side;
    const bool open = start == 0 || (space_.may_cut(start) && accept(cost_.cut(start, span, CutSide::in)));
    return side = {start, open, open && sums_ == Sums::count ? cost_.passage(start, span) : 0};
  }
  /// A stage may end at `end`; with the fill and the passage of all in front of it.
  Side stops(int end, DeviceSpan span) {
    Side& side = out_[slot(span) * out_row() + (together() ? at(end) : 0)];
    if (side.boundary == end) return side;
    const bool inner = end != layers_;
    const bool open = !inner || (space_.may_cut(end) && accept(cost_.cut(end, span, CutSide::out)));
    side = {end, open, 0};
    if (!open || sums_ == Sums::ignore) return side;
    side.sum = cost_.passage(end, span) + (inner ? cost_.fill(end, span) : 0);
    return side;
  }

  /// All stages that begin at `start`.
  void relax(int start, int level) {
    for (int c = 0; c < counts_.size(); ++c) {
      const int count = counts_[c];
      if (!space_.may_replicate(level, count)) continue;
      if (together()) {
        scan(start, level, {0, count});
      } else if (memory_ != nullptr || falls_[at(count)]) {
        for (int first = 0; first + count <= devices_; first += counts_.unit())
          scan(start, level, {first, count});
      } else {
        slide(start, level, count);
      }
    }
    if (!together()) settle(start, to(level));
  }

  /// Spans with ends in their queue stay in `waiting`, those with a suffix at start + 1 are joined to them.
  void slide(int start, int level, int count) {
    std::vector<int>& waiting = waiting_[row(level, count)];
    for (const int first : known(from(level), start + 1)) {
      const DeviceSpan span{first, count};
      if (span.end() > devices_) break;
      if (!uniform_ && !cost_.considers(span)) continue;
      const Side side = stops(start + 1, span);
      if (!side.open) continue;
      const int tail = head(from(level), start + 1, first);
      Ends& ends = queue(level, span);
      if (ends.empty()) waiting.push_back(first);
      ends.push({label(tail).sum + side.sum, start + 1, tail, label(tail).stages});
    }
    std::erase_if(waiting, [&](int first) { return !slide_one(start, level, {first, count}); });
  }

  std::size_t row(int level, int count) const {
    return at((level - 1) * counts_.size() + counts_.place(count));
  }
  Ends& queue(int level, DeviceSpan span) {
    int& queue = queues_[row(level, span.count) * at(places_ + 1) + at(span.first / counts_.unit())];
    if (queue == kNoLabel) {
      queue = static_cast<int>(ends_.size());
      ends_.emplace_back();
    }
    return ends_[at(queue)];
  }

  /// False: no end is left.
  bool slide_one(int start, int level, DeviceSpan span) {
    Ends& ends = queue(level, span);
    const int furthest_end = furthest(start, span);
    while (!ends.empty() && !(ends.front().end <= furthest_end && cost_.fits(start, ends.front().end, span))) {
      ends.pop();
    }
    if (ends.empty()) return false;
    if (span.end() > devices_ - needs_[at(start)]) return true;  // too few are left for the layers in front
    const Side side = begins(start, span);
    if (!side.open) return true;
    const auto& [key, end, tail, stages] = ends.front();
    offer(level, start, {key - side.sum, span.end(), 0, stages + 1, end, span.count, tail});
    return true;
  }

  /// Every end. Where devices are alike `span` stands for all spans of as many.
  void scan(int start, int level, DeviceSpan span) {
    if (!cost_.considers(span)) return;
    const int most = devices_ - span.count - needs_[at(start)];  // behind the stage
    if (most < 0) return;
    const int last = furthest(start, span);
    for (int end = start + 1; end <= last; ++end) {
      const int tails = head(from(level), end, span.first);
      if (tails == kNoLabel || (together() && fewest_[index(from(level), end, 0)] > most)) continue;
      if (falls_[at(span.count)] && !accept(cost_.stage(start, end, span))) continue;
      const Side behind = stops(end, span);
      if (!behind.open) continue;
      const Side front = begins(start, span);
      if (!front.open) return;
      for (int tail = tails; tail != kNoLabel; tail = label(tail).sibling) {
        if (label(tail).devices <= most) extend(level, {start, end, span.count}, tail, behind.sum - front.sum);
      }
    }
  }

  void extend(int level, const StageRange& stage, int tail, double sum) {
    const Label& behind = label(tail);
    const DeviceSpan span{behind.devices, stage.replicas};
    int demand = 0;
    if (memory_ != nullptr) demand = memory_->demand(span, {behind.devices, behind.stages, behind.demand});
    const Label made{behind.sum + sum, span.end(), demand, behind.stages + 1, stage.end, stage.replicas, tail};
    if (is_dominated(level, stage.begin, made)) return;  // before the memory, which takes longer
    const bool fits =
        memory_ != nullptr ? memory_->fits(stage, span, demand) : cost_.fits(stage.begin, stage.end, span);
    if (fits) offer(level, stage.begin, made);
  }

  bool is_dominated(int level, int start, const Label& made) {
    for (int known = head(to(level), start, made.devices); known != kNoLabel; known = label(known).sibling) {
      if (label(known).dominates(made)) return true;
    }
    return false;
  }

  void offer(int level, int start, const Label& made) {
    int* link = &head(to(level), start, made.devices);
    for (int known = *link; known != kNoLabel; known = label(known).sibling) {
      if (label(known).dominates(made)) return;
    }
    int place = static_cast<int>(labels_.size());
    while (*link != kNoLabel) {
      Label& known = label(*link);
      if (made.dominates(known)) {
        place = *link;  // nobody stands in front of it yet
        *link = known.sibling;
      } else {
        link = &known.sibling;
      }
    }
    *link = place;  // before the labels move
    if (place == static_cast<int>(labels_.size())) labels_.emplace_back();
    label(place) = made;
    if (together()) {
      int& fewest = fewest_[index(to(level), start, 0)];
      fewest = std::min(fewest, made.devices);
    }
  }

  /// Where devices are alike, a suffix that uses more of them than another and adds up to no less is of no use
  /// to anybody.
  void settle(int start, int level) {
    double least = std::numeric_limits<double>::infinity();
    for (int used = counts_.unit(); used <= devices_; used += counts_.unit()) {
      int& front = head(level, start, used);
      if (front == kNoLabel) continue;
      if (uniform_ && label(front).sum >= least) {
        front = kNoLabel;
      } else {
        least = label(front).sum;
        known(level, start).push_back(used);
      }
    }
  }

  PointTest walk() {
    int best = kNoLabel;
    for (int level = space_.exact_stages; level <= levels_; ++level) {
      for (int row = 0; row < static_cast<int>(rows()); ++row) {
        for (int other = head(level, 0, row * counts_.unit()); other != kNoLabel;
             other = label(other).sibling) {
          if (best == kNoLabel || label(other).rank() < label(best).rank()) best = other;
        }
      }
    }
    PointTest test;
    test.next = next_;
    if (best == kNoLabel) return test;
    Partition& partition = test.point.partition;
    for (int start = 0; start < layers_; best = label(best).next) {
      partition.push_back({start, label(best).end, label(best).replicas});
      start = label(best).end;
    }
    test.point.load = largest_load(partition, layers_, cost_);
    test.point.sum = sum_of(partition, layers_, cost_);
    return test;
  }

  const SearchSpace& space_;
  const StageCost& cost_;
  const ExactMemory* memory_;
  double limit_;
  Sums sums_;
  int layers_;
  int devices_;
  int levels_;
  ReplicaCounts counts_;
  int places_;  ///< where stages may begin on the devices
  bool uniform_;
  std::vector<char> falls_;                                ///< by replicas: StageCost::may_fall()
  double next_ = std::numeric_limits<double>::infinity();  ///< the smallest load that was refused
  std::vector<int> needs_;                                 ///< front_needs(); zeros on a list
  std::vector<Label> labels_;
  std::vector<int> heads_;  ///< first labels of the fronts
  std::vector<std::vector<int>> known_;
  std::vector<int> queues_;  ///< per level and span, of `ends_`; kNoLabel: not used yet
  std::vector<Ends> ends_;
  std::vector<std::vector<int>> waiting_;  ///< per level and replicas, where the spans begin
  std::vector<Side> in_, out_;             ///< per slot()
  std::vector<Reach> reach_;               ///< per slot()
  std::vector<int> fewest_;                ///< with fronts together, the devices of the smallest label
};

}  // namespace

PointTest test_labels(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory, double limit,
                      Sums sums) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, memory, [&](const auto& segments, const auto& of, const auto* exact) {
      return test_labels(segments, of, exact, limit, sums);
    });
  return Probe(space, cost, memory, limit, sums).run();
}

BottleneckResult search_least_load(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                                   double most) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, memory, [&](const auto& segments, const auto& of, const auto* exact) {
      return search_least_load(segments, of, exact, most);
    });
  const auto probe = [&](const ExactMemory* exact) {
    return [&, exact](double limit) {
      PointTest test = test_labels(space, cost, exact, limit, Sums::ignore);
      return BottleneckTest{std::move(test.point.partition), test.point.load, test.next};
    };
  };
  BottleneckResult least =
      cost.uniform() ? search_bottleneck(space, cost) : bisect_bottleneck(probe(nullptr), 0);
  if (memory == nullptr || !least.feasible() || memory->fits(least.partition)) return least;
  const bool bounded = most < std::numeric_limits<double>::infinity();
  if (bounded && !probe(memory)(most).feasible()) return {};
  return bisect_bottleneck(probe(memory), least.value);
}

namespace {

/// Probes for points: without the exact memory as long as what is found fits.
class PointProbe {
 public:
  PointProbe(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory)
      : space_(space), cost_(cost), memory_(memory) {}

  PointTest operator()(double limit) {
    if (relaxed_) {
      PointTest found = test_labels(space_, cost_, nullptr, limit);
      if (memory_ == nullptr || !found.feasible() || memory_->fits(found.point.partition)) return found;
      relaxed_ = false;
    }
    return test_labels(space_, cost_, memory_, limit);
  }
  /// No more than any load; nothing where none is within the memory.
  std::optional<double> least_load() const {
    const BottleneckResult least = search_least_load(space_, cost_);
    return least.feasible() ? std::optional(least.value) : std::nullopt;
  }
  /// Whether some objective is.
  bool is_within(double most) {
    if (most == std::numeric_limits<double>::infinity()) return true;
    return point_within(most, cost_.base(), std::ref(*this)).feasible();
  }

 private:
  const SearchSpace& space_;
  const StageCost& cost_;
  const ExactMemory* memory_;
  bool relaxed_ = true;
};

}  // namespace

ParetoFront search_points(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                          double most) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, memory, [&](const auto& segments, const auto& of, const auto* exact) {
      return search_points(segments, of, exact, most);
    });
  PointProbe probe(space, cost, memory);
  if (!probe.is_within(most)) return {};
  const std::optional<double> least = probe.least_load();
  return least ? enumerate_points(*least, cost.base(), std::ref(probe), most) : ParetoFront();
}

Point search_best_point(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                        double most) {
  if (!space.cut_allowed.empty())
    return contracted(space, cost, memory, [&](const auto& segments, const auto& of, const auto* exact) {
      return search_best_point(segments, of, exact, most);
    });
  PointProbe probe(space, cost, memory);
  if (!probe.is_within(most)) return {};
  const std::optional<double> least = probe.least_load();
  return least ? least_objective(*least, cost.base(), std::ref(probe), most) : Point();
}

}  // namespace pp::plan
