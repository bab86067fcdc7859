#include "tests/libplan/search/exact/lattice_search.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "libplan/cost/constants.h"
#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// What lies behind a set, and the stage that begins there.
struct LatticeLabel {
  int devices = 0;
  int stages = 0;
  double sum = 0;
  int end = 0;
  int replicas = 0;
  std::size_t next = 0;  ///< label of `end`
};

/// One space under one cost, to be probed at several limits.
class LatticeProbe {
 public:
  LatticeProbe(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, Sums sums)
      : lattice_(lattice),
        space_(space),
        cost_(cost),
        in_(slot(lattice.size(), 0)),
        out_(in_.size()),
        fill_(at(lattice.size()), 0) {
    std::size_t pairs = 0;
    for (const std::vector<int>& ends : lattice.ends) pairs += ends.size();
    least_.assign(pairs, 1);
    for (int k = 1; k + 1 < lattice.size(); ++k) {
      if (sums == Sums::count) fill_[at(k)] = cost.fill(k, {});
      for (int q = 1; q <= space.replica_limit(); ++q) {
        in_[slot(k, q)] = cost.cut(k, {0, q}, CutSide::in);
        out_[slot(k, q)] = cost.cut(k, {0, q}, CutSide::out);
      }
    }
  }

  /// Fastest while the limits fall.
  PointTest run(double limit) {
    limit_ = limit;
    next_ = kInfinity;
    labels_.assign(lattice_.sets.size(), {});
    labels_.back().push_back({});
    if (limit > known_) std::ranges::fill(least_, 1);
    std::vector<int> least = least_;
    auto pair = least.begin();
    for (int begin = lattice_.size() - 2; begin >= 0; --begin) {
      space_.stop.look();
      for (const int end : lattice_.ends[at(begin)]) *pair = extend(begin, end, *pair), ++pair;
    }
    PointTest result;
    result.next = next_;
    if (const LatticeLabel* best = best_label()) {
      walk(*best, result.point);
      least_ = std::move(least);
      known_ = limit;
    }
    return result;
  }
  BottleneckTest load(double limit) {
    PointTest found = run(limit);
    return {std::move(found.point.partition), found.point.load, found.next};
  }

 private:
  std::size_t slot(int boundary, int replicas) const {
    return at(boundary) * at(space_.replica_limit() + 1) + at(replicas);
  }

  /// Puts the stage in front of every label of its end, with the fewest replicas that keep to the limit: more
  /// of them only leave fewer devices to the stages before. Fewer than `least` do not; returns how many do.
  int extend(int begin, int end, int least) {
    const std::vector<LatticeLabel>& behind = labels_[at(end)];
    if (behind.empty()) return least;
    open_.resize(behind.size());
    std::iota(open_.begin(), open_.end(), std::size_t{0});
    const int fewest = std::ranges::min(behind, {}, &LatticeLabel::devices).devices;
    const int most = std::min(space_.replica_limit(), space_.devices - fewest);
    int enough = most + 1;
    for (int q = least; q <= most && !open_.empty(); ++q) {
      const double load = std::max({cost_.stage(begin, end, {0, q}), in_[slot(begin, q)], out_[slot(end, q)]});
      if (load > limit_) {
        next_ = std::min(next_, load);
      } else {
        enough = std::min(enough, q);
        std::erase_if(open_, [&](std::size_t i) { return serve(begin, end, q, i); });
      }
    }
    return enough;
  }

  /// Whether label `i` of `end` may have this stage in front of it, which is then known at `begin`.
  bool serve(int begin, int end, int replicas, std::size_t i) {
    const LatticeLabel& behind = labels_[at(end)][i];
    const int stages = behind.stages + 1;
    if (behind.devices + replicas > space_.devices) return false;
    if (space_.levels() != 0 && stages > space_.levels()) return false;
    if (!space_.may_replicate(stages, replicas) || !cost_.fits(begin, end, {behind.devices, replicas}))
      return false;
    const double sum = behind.sum + fill_[at(begin)];
    offer(labels_[at(begin)], {behind.devices + replicas, stages, sum, end, replicas, i});
    return true;
  }

  /// Keeps the labels that no other beats in everything that later stages depend on.
  void offer(std::vector<LatticeLabel>& labels, const LatticeLabel& fresh) const {
    const auto beats = [&](const LatticeLabel& a, const LatticeLabel& b) {
      if (a.devices > b.devices || a.sum > b.sum) return false;
      if (space_.exact_stages != 0) return a.stages == b.stages;
      return space_.max_stages == 0 || a.stages <= b.stages;
    };
    if (std::ranges::any_of(labels, [&](const LatticeLabel& known) { return beats(known, fresh); })) return;
    std::erase_if(labels, [&](const LatticeLabel& known) { return beats(fresh, known); });
    labels.push_back(fresh);
  }

  const LatticeLabel* best_label() const {
    const LatticeLabel* best = nullptr;
    const auto key = [](const LatticeLabel& label) {
      return std::tuple(label.sum, label.devices, label.stages);
    };
    for (const LatticeLabel& label : labels_.front()) {
      if (space_.exact_stages != 0 && label.stages != space_.exact_stages) continue;
      if (best == nullptr || key(label) < key(*best)) best = &label;
    }
    return best;
  }

  void walk(const LatticeLabel& first, Point& result) const {
    result.sum = first.sum;
    result.load = 0;
    const LatticeLabel* label = &first;
    for (int begin = 0; begin != lattice_.size() - 1; begin = result.partition.back().end) {
      result.partition.push_back({begin, label->end, label->replicas});
      result.load = std::max({result.load, cost_.stage(begin, label->end, {0, label->replicas}),
                              in_[slot(begin, label->replicas)], out_[slot(label->end, label->replicas)]});
      label = &labels_[at(label->end)][label->next];
    }
  }

  const Lattice& lattice_;
  const SearchSpace& space_;
  const StageCost& cost_;
  std::vector<double> in_, out_;  ///< loads of the boundaries, by slot()
  /// Per pair, the fewest replicas whose load is not above `known_`, the limit of the last run that found
  /// something: the loads of fewer are above the optimum.
  std::vector<int> least_;
  double known_ = kInfinity;
  std::vector<double> fill_;  ///< of the boundaries; 0 where sums do not count
  double limit_ = kInfinity;
  double next_ = kInfinity;
  std::vector<std::vector<LatticeLabel>> labels_;
  std::vector<std::size_t> open_;
};

}  // namespace

PointTest test_lattice(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, double limit) {
  return LatticeProbe(lattice, space, cost, Sums::count).run(limit);
}

BottleneckResult search_lattice_bottleneck(const Lattice& lattice, const SearchSpace& space,
                                           const StageCost& cost) {
  LatticeProbe probe(lattice, space, cost, Sums::ignore);
  return bisect_bottleneck([&](double limit) { return probe.load(limit); }, 0);
}

double lattice_bound(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, double enough) {
  LatticeProbe probe(lattice, space, cost, Sums::ignore);
  return bisect_bound([&](double limit) { return probe.load(limit); }, enough);
}

ParetoFront search_lattice_points(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                                  double most) {
  LatticeProbe probe(lattice, space, cost, Sums::count);
  const auto test = [&](double limit) { return probe.run(limit); };
  if (most < kInfinity && !point_within(most, cost.base(), test).feasible()) return {};
  const BottleneckResult least = search_lattice_bottleneck(lattice, space, cost);
  if (!least.feasible()) return {};
  return enumerate_points(least.value, cost.base(), test, most);
}

LinearPartition linear(const Lattice& lattice, const Partition& partition, int layers) {
  LinearPartition result;
  for (const auto& [begin, end, replicas] : partition) {
    const int first = static_cast<int>(result.order.size());
    const std::vector<int> stage = layers_between(lattice.sets[at(begin)], lattice.sets[at(end)], layers);
    result.order.insert(result.order.end(), stage.begin(), stage.end());
    result.partition.push_back({first, static_cast<int>(result.order.size()), replicas});
  }
  return result;
}

}  // namespace pp::plan
