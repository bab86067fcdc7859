// The operations of a run's last steps: chosen from what the workers wrote down, and as the timeline draws them
// beside the prediction.
#pragma once

#include <span>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/simulate/memory_walk.h"
#include "librun/report/record.h"

namespace pp::run {

struct TimedOp {
  plan::OpEvent event;
  Bytes peak;  ///< as in OpRecord
  Bytes held;
  bool operator==(const TimedOp&) const = default;
};

/// What began from the first operation of `first_step` on. Times count from there.
struct LastSteps {
  std::int64_t first_step = 0;  ///< from 1; 0: nothing is known
  int steps = 0;
  std::vector<TimedOp> ops;  ///< by start; micro-batches count from 0
  std::vector<plan::MessageEvent> messages;
  std::vector<int> samples =
      {};  ///< of each step: an epoch's last mini-batch may be a partial one; empty: not known
  bool operator==(const LastSteps&) const = default;
};

/// The last two steps, of streams as many mini-batches as show the steady state; fewer where an epoch has fewer
/// or where they would be more than kMostOps. `range`: how many steps have followed each other up to the
/// last.
LastSteps last_steps(const plan::Plan& plan, std::span<const WorkerRecord* const> workers, std::int64_t range);
inline constexpr std::size_t kMostOps = 10000;

/// What plan::timeline_svg() draws.
struct Drawn {
  plan::SimulationResult result;
  std::vector<plan::MemoryCurve> memory;
};
/// `parts` of each worker are what it holds all the time.
Drawn measured_timeline(const LastSteps& last, std::span<const plan::MemoryParts> parts);
/// As many steps in steady state, simulated. The plan must carry costs (plan.predicted.stages).
Drawn predicted_timeline(const plan::Plan& plan, int steps);

}  // namespace pp::run
