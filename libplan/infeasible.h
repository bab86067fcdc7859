// Why there is no plan, of our planner or of a peer's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// No plan keeps to the limits.
struct Infeasible {
  std::string reason;                   ///< one sentence: thing, value, limit
  std::optional<int> stage;             ///< of the best attempt, the one that falls short
  std::optional<DeviceId> device;       ///< where that stage would run
  std::vector<std::string> layers;      ///< of that stage
  Bytes short_by;                       ///< bytes that device lacks
  std::optional<Bytes> smallest_limit;  ///< the least `memory_limit` under which this request has a plan
  std::string remedy;      ///< the smallest change that was planned and fits, as an option; empty: none found
  bool cut_short = false;  ///< by the observer: a smaller limit or another change may do, too
  bool operator==(const Infeasible&) const = default;
};

}  // namespace pp::plan
