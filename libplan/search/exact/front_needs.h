// How many devices the layers in front of a boundary need at least, for searches from the back over devices
// that are alike: what leaves fewer than that need not be looked at.
#pragma once

#include <limits>
#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

struct FrontNeeds {
  static constexpr int kNone = std::numeric_limits<int>::max();  ///< no number of devices is enough

  std::vector<int> devices;  ///< per boundary 0..N-1, never falling
  /// The smallest stage load that was refused. A partition that is left out because of `devices` has a stage
  /// with no less.
  double refused = std::numeric_limits<double>::infinity();
};

/// As if there were nothing to exchange, no layers behind them and no rules about cuts: for each number of
/// replicas the last stage begins as early as it can within `limit` and the memory. Larger stages cost and hold
/// no less. O(layers * devices).
FrontNeeds front_needs(const SearchSpace& space, const StageCost& cost, const ReplicaCounts& counts,
                       double limit);

}  // namespace pp::plan
