#include "libplan/search/candidates/near_optima.h"

#include <algorithm>

#include "libplan/search/exact/front_needs.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr int kMostPlaced = 20'000;  ///< stages, dead ends included

/// Depth first from the last stage to the first.
class Enumeration {
 public:
  Enumeration(const SearchSpace& space, const StageCost& cost, double limit, std::size_t most)
      : space_(space),
        cost_(cost),
        limit_(limit),
        most_(most),
        needs_(front_needs(space, cost, ReplicaCounts(space, cost), limit).devices) {}

  std::optional<std::vector<Partition>> run() {
    extend(space_.layers, 0, 0, 0);
    if (too_many()) return std::nullopt;
    return std::move(found_);
  }

 private:
  bool too_many() const { return found_.size() > most_ || placed_ > kMostPlaced; }

  /// Puts every stage that may end at `end` in front of the stages so far.
  void extend(int end, int used, double load, double sum) {
    const int level = static_cast<int>(stages_.size()) + 1;
    if (space_.levels() != 0 && level > space_.levels()) return;
    const int most = std::min(space_.devices - used, space_.replica_limit());
    for (int begin = end - 1; begin >= 0; --begin) {
      bool light = false;
      for (int replicas = 1; replicas <= most && !too_many(); ++replicas) {
        if (!space_.may_replicate(level, replicas)) continue;
        const double stage = std::max(load, cost_.stage(begin, end, {0, replicas}));
        if (stage + sum > limit_ && !cost_.may_fall(replicas)) continue;
        light = true;
        if (used + replicas <= space_.devices - needs_[at(begin)])
          place({begin, end, replicas}, used, stage, sum);
      }
      if (!light) return;  // with more layers it is no lighter
    }
  }

  void place(const StageRange& stage, int used, double load, double sum) {
    const auto& [begin, end, replicas] = stage;
    ++placed_;
    if (begin != 0 && !space_.may_cut(begin)) return;
    const DeviceSpan span{used, replicas};
    if (end != space_.layers) load = std::max(load, cost_.cut(end, span, CutSide::out));
    if (begin != 0) load = std::max(load, cost_.cut(begin, span, CutSide::in));
    if (begin != 0) sum += cost_.fill(begin, span);
    if (load + sum > limit_ || !cost_.fits(begin, end, span)) return;
    stages_.push_back(stage);
    if (begin == 0) {
      if (space_.exact_stages == 0 || std::ssize(stages_) == space_.exact_stages)
        found_.emplace_back(stages_.rbegin(), stages_.rend());
    } else {
      extend(begin, used + replicas, load, sum);
    }
    stages_.pop_back();
  }

  const SearchSpace& space_;
  const StageCost& cost_;
  double limit_;
  std::size_t most_;
  std::vector<int> needs_;  ///< front_needs()
  Partition stages_;        ///< last first
  std::vector<Partition> found_;
  int placed_ = 0;
};

}  // namespace

std::optional<std::vector<Partition>> partitions_within(const SearchSpace& space, const StageCost& cost,
                                                        double limit, std::size_t most) {
  return Enumeration(space, cost, limit, most).run();
}

std::vector<Partition> near_optima(const SearchSpace& space, const StageCost& cost, double least, double limit,
                                   std::size_t most) {
  constexpr int kTries = 10;
  std::vector<Partition> found;
  double tried = limit;
  for (int i = 0; i < kTries && least < limit; ++i) {
    if (auto closer = partitions_within(space, cost, tried, most)) {
      least = tried;
      found = *std::move(closer);
    } else {
      limit = tried;
    }
    tried = least + (limit - least) / 2;
  }
  return found;
}

}  // namespace pp::plan
