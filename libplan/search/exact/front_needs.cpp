#include "libplan/search/exact/front_needs.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {}  // namespace

FrontNeeds front_needs(const SearchSpace& space, const StageCost& cost, const ReplicaCounts& counts,
                       double limit) {
  FrontNeeds needs;
  needs.devices.assign(at(space.layers), FrontNeeds::kNone);
  needs.devices[0] = 0;
  const auto may_run = [&](int begin, int end, int replicas) {
    if (!cost.fits(begin, end, {0, replicas})) return false;
    if (cost.may_fall(replicas)) return true;
    const double load = cost.stage(begin, end, {0, replicas});
    if (load > limit) needs.refused = std::min(needs.refused, load);
    return load <= limit;
  };
  std::vector<int> begins(at(counts.size()), 0);
  for (int end = 1; end < space.layers; ++end) {
    int& least = needs.devices[at(end)];
    for (int c = 0; c < counts.size(); ++c) {
      const int replicas = counts[c];
      int& begin = begins[at(c)];
      while (begin < end && !may_run(begin, end, replicas)) ++begin;
      if (begin < end && needs.devices[at(begin)] != FrontNeeds::kNone)
        least = std::min(least, needs.devices[at(begin)] + replicas);
    }
  }
  return needs;
}

}  // namespace pp::plan
