// The gradients of one shared layer whose copies stand in several stages, added over the copies.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "librun/stage/stage.h"
#include "librun/transport/coordinator.h"

namespace pp::run {

/// One object per entry of Plan::tied, shared by the workers of its stages. Every worker adds all uses itself,
/// in ascending layer order, as a single stage would: all copies get the same bits, those of training without
/// copies.
class TiedReduce {
 public:
  TiedReduce(Coordinator& coordinator, std::vector<WorkerId> workers);

  /// Per parameter the sum over all uses, new tensors on `device`, which is this worker's. `mine` are the uses
  /// in the worker's own stages, complete; replicas of a stage bring the same. Blocks until every worker has
  /// called. Throws as Monitor::wait does.
  TiedGradients reduce(WorkerId worker, UseGradients mine, const at::Device& device);

 private:
  std::vector<WorkerId> workers_;
  Barrier barrier_;
  std::vector<UseGradients> parts_;  ///< per worker; written before the first barrier, read until the second
};

}  // namespace pp::run
