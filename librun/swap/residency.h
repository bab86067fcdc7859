// What the plan of a schedule that keeps weights on the host (Harmony) says of each worker: how much its
// device may hold, whose copy of the weights it loads, what of its program an evaluation runs; and what a
// worker counts of the copies. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>

#include "libplan/plan/plan.h"
#include "libprofile/core/units.h"
#include "librun/options/run_options.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Copies of stages between host and device, one way.
struct SwapCount {
  std::int64_t count = 0;
  Bytes bytes;
  Seconds time{};
  void add(Bytes more, Seconds taken) { ++count, bytes += more, time += taken; }
};

/// Where weights live on the host: what came to the device and went back in training. The worker's copying
/// thread writes it.
struct SwapRecord {
  SwapCount in, out;
};

/// Whether stages come from the host and go back.
bool swaps(const plan::Plan& plan);

/// The worker whose updates make the host's copy of the stage that `worker` loads: itself where it updates the
/// stage (every worker of harmony-dp has a copy of its own), else the one that does.
WorkerId home_of(const plan::Plan& plan, StageId stage, WorkerId worker);

/// What the worker's device may hold: --memory-limit, else what the plan says the device has; nothing: no
/// limit.
std::optional<Bytes> device_limit(const plan::Plan& plan, const ExecutionOptions& options, WorkerId worker);

/// The forwards of a step with the loads and evictions that they need.
plan::Program forward_part(const plan::Program& program);

/// Swaps of a step, as a program lists them: a load brings the weights, with the optimizer's state where they
/// are updated before they are evicted; then both go back.
struct PlannedSwaps {
  int loads = 0, writes = 0;
  Bytes in, out;
};
/// Per worker; bytes are 0 where the plan predicts nothing.
std::vector<PlannedSwaps> planned_swaps(const plan::Plan& plan);

/// Throws pp::Error for options and placements that swapped weights exclude, and for a worker whose device
/// cannot hold what the plan has there at one time. `state_ratio`: bytes of optimizer state per byte of
/// weights.
void check_swapped(const plan::Plan& plan, const ResolvedModel& model, const RunOptions& options,
                   const Placement& placement, double state_ratio);

}  // namespace pp::run
