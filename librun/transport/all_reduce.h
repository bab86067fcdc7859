// The all-reduce of one stage's replicas within a process: deterministic, in replica order.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "librun/stage/stage.h"
#include "librun/transport/coordinator.h"

namespace pp::run {

/// One object per replicated stage, shared by its replicas. Every replica adds one slice of all parameters,
/// replica 0 first; afterwards all refer to the same reduced tensors, so every replica applies the same bytes.
/// Statistics of batch norm are brought together as well. A replica's undefined gradient counts as zero.
class AllReduce {
 public:
  AllReduce(Coordinator& coordinator, std::vector<WorkerId> replicas);

  /// What all replicas get, on `device`, which is this worker's; read-only. `mine` is complete. Blocks until
  /// every replica has called. `elapsed` receives the seconds of this worker's own additions, waiting left out.
  /// Throws as Monitor::wait does.
  StepGradients reduce(WorkerId worker, StepGradients mine, const at::Device& device, Seconds& elapsed);

 private:
  /// Adds elements [first, last) of the parameters laid end to end into the tensors of the first replica that
  /// has them.
  void add_slice(std::size_t replica);
  StepGradients collect(const at::Device& device) const;

  std::vector<WorkerId> replicas_;
  Barrier barrier_;
  std::vector<StepGradients> parts_;  ///< per replica; written before the first barrier, read until the last
};

}  // namespace pp::run
