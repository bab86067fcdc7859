// What the workers of a run keep on the host: the weights of each stage with what is updated beside them, and
// the inputs of forwards that run again, until they do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "libplan/plan/plan.h"
#include "librun/threads/coordinator.h"

namespace pp::run {

class HostStore {
 public:
  using Tensors = std::vector<at::Tensor>;

  HostStore(Coordinator& run, const plan::Plan& plan);

  /// The copy of the stage that `worker` loads (home_of()). Who reads it has awaited it; its home alone writes,
  /// when nobody reads.
  Tensors& weights(StageId stage, WorkerId worker) { return copy(stage, worker).tensors; }
  /// The home's side: the copy is that of so many updates.
  void publish(StageId stage, WorkerId home, std::int64_t updates);
  /// Blocks until the copy is that of `updates` or more. Throws as Monitor::wait does.
  void await(StageId stage, WorkerId worker, std::int64_t updates);

  /// A micro-batch's inputs of a stage, by the number of its messages; any worker takes them.
  void stash(StageId stage, std::int64_t micro_batch, Tensors inputs);
  /// Blocks until they are there.
  Tensors take(WorkerId worker, StageId stage, std::int64_t micro_batch);

 private:
  struct Copy {
    Tensors tensors;
    std::int64_t updates = -1;  ///< none yet
  };
  using Key = std::pair<StageId, WorkerId>;
  Copy& copy(StageId stage, WorkerId worker) { return copies_.at(homes_.at({stage, worker})); }

  Monitor monitor_;
  std::map<Key, Key> homes_;  ///< by stage and worker
  std::map<Key, Copy> copies_;
  std::map<std::pair<StageId, std::int64_t>, Tensors> stashed_;
};

}  // namespace pp::run
