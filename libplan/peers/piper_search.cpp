#include "libplan/peers/piper_search.h"

#include <algorithm>
#include <cmath>

#include "libplan/cost/constants.h"
#include "libplan/search/exact/bisect.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Sums of work round otherwise than loads do.
constexpr double kJustBelow = 1 - 1e-12;

struct Test {
  std::vector<PiperPlanStage> stages;
  double value = kInfinity;
  double next = kInfinity;
  bool feasible() const { return !stages.empty(); }
};

/// What holds for every limit.
struct Space {
  const std::vector<LayerSet>& sets;
  const PiperProblem& problem;
  int layers = 0;
  std::vector<double> work;   ///< of each set
  std::vector<int> replicas;  ///< that divide the batch, ascending
};

Space make_space(const std::vector<LayerSet>& sets, const PiperProblem& problem) {
  Space space{sets, problem, static_cast<int>(problem.work.size()), {}, {}};
  for (const LayerSet& set : sets) {
    double sum = 0;
    for (int layer = 0; layer < space.layers; ++layer) sum += set.has(layer) ? problem.work[at(layer)] : 0;
    space.work.push_back(sum * kJustBelow);
  }
  for (int d = 1; d <= std::min(problem.devices, problem.micro_batches); ++d) {
    if (problem.micro_batches % d == 0) space.replicas.push_back(d);
  }
  return space;
}

/// Of what a set lacks: a way to run it with every load within the limit.
struct Way {
  int devices = 0;
  int slots = 0;  ///< replicas of all its stages
  int end = 0;    ///< the first of them leads to this set
  int rest = 0;   ///< the way of that set that the others take
  int replicas = 0;
  int degree = 0;
};

/// Fewer devices and fewer slots never hurt the stages in front, so a front of both is enough.
class Probe {
 public:
  Probe(const Space& space, double limit)
      : space_(space), problem_(space.problem), limit_(limit), ways_(space.sets.size()) {}

  Test run() {
    const int full = static_cast<int>(ways_.size()) - 1;
    ways_[at(full)].push_back({});
    for (int end = full; end > 0; --end) {
      if (ways_[at(end)].empty()) continue;
      for (int begin = end - 1; begin >= 0; --begin) {
        if (space_.sets[at(end)].contains(space_.sets[at(begin)])) extend(begin, end);
      }
    }
    return walk();
  }

 private:
  void extend(int begin, int end) {
    layers_.clear();
    for (int degree = 0; degree < static_cast<int>(problem_.degrees.size()); ++degree) {
      taken_ = Taken::not_yet;
      for (int rest = 0; rest < std::ssize(ways_[at(end)]); ++rest) {
        if (!extend(begin, end, degree, rest)) break;
      }
    }
  }

  /// With the fewest replicas that keep to the limit. False: the layers do not run at this degree.
  bool extend(int begin, int end, int degree, int rest) {
    const Way& behind = ways_[at(end)][at(rest)];
    const int width = problem_.degrees[at(degree)];
    const double stage_work = space_.work[at(end)] - space_.work[at(begin)];
    for (const int replicas : space_.replicas) {
      const int left = problem_.devices - behind.devices - width * replicas;
      if (left < 0 || behind.slots + replicas > problem_.micro_batches) break;
      if (!accept(space_.work[at(begin)], left)) break;
      if (!accept(stage_work * kJustBelow, width * replicas)) continue;
      if (!take(begin, end, degree)) return false;
      const int slots = behind.slots + replicas;
      const double load = problem_.load(replicas, (slots + replicas - 1) / replicas, limit_);
      if (load > limit_) {
        next_ = std::min(next_, load);
        continue;
      }
      keep(ways_[at(begin)], {behind.devices + width * replicas, slots, end, rest, replicas, degree});
      break;
    }
    return true;
  }

  /// Whether so many devices can do this work within the limit.
  bool accept(double work, int devices) {
    if (work <= 0 || (devices > 0 && work <= limit_ * devices)) return true;
    if (devices > 0) next_ = std::min(next_, std::max(work / devices, std::nextafter(limit_, kInfinity)));
    return false;
  }

  bool take(int begin, int end, int degree) {
    if (taken_ == Taken::not_yet) {
      if (layers_.empty())
        layers_ = layers_between(space_.sets[at(begin)], space_.sets[at(end)], space_.layers);
      taken_ = problem_.take(degree, layers_) ? Taken::yes : Taken::no;
    }
    return taken_ == Taken::yes;
  }

  static void keep(std::vector<Way>& ways, const Way& way) {
    const auto covers = [](const Way& a, const Way& b) { return a.devices <= b.devices && a.slots <= b.slots; };
    if (std::ranges::any_of(ways, [&](const Way& other) { return covers(other, way); })) return;
    std::erase_if(ways, [&](const Way& other) { return covers(way, other); });
    ways.push_back(way);
  }

  Test walk() {
    Test test;
    test.next = next_;
    if (ways_.front().empty()) return test;
    test.value = 0;
    const Way* way = &*std::ranges::min_element(ways_.front(), {}, &Way::devices);
    for (int begin = 0; begin < static_cast<int>(ways_.size()) - 1;) {
      PiperPlanStage stage{layers_between(space_.sets[at(begin)], space_.sets[at(way->end)], space_.layers),
                           way->replicas, way->degree};
      problem_.take(stage.degree, stage.layers);
      const int in_flight = (way->slots + way->replicas - 1) / way->replicas;
      test.value = std::max(test.value, problem_.load(stage.replicas, in_flight, std::nullopt));
      test.stages.push_back(std::move(stage));
      begin = way->end;
      way = &ways_[at(begin)][at(way->rest)];
    }
    return test;
  }

  enum class Taken { not_yet, no, yes };

  const Space& space_;
  const PiperProblem& problem_;
  double limit_;
  double next_ = kInfinity;
  std::vector<std::vector<Way>> ways_;  ///< per set
  std::vector<int> layers_;             ///< of the stage at hand
  Taken taken_ = Taken::not_yet;
};

}  // namespace

PiperSolution search_piper(const std::vector<LayerSet>& sets, const PiperProblem& problem) {
  const Space space = make_space(sets, problem);
  const auto probe = [&](double limit) { return Probe(space, limit).run(); };
  if (!probe(kInfinity).feasible()) return {};
  int probes = 0;
  Test best = bisect<Test>(probe, space.work.back() / problem.devices, probes);
  return {best.value, std::move(best.stages)};
}

}  // namespace pp::plan
