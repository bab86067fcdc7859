// A worker's end of a parameter server around which the replicas of its one stage train.
#pragma once

#include <optional>

#include "librun/server/remote_server.h"
#include "librun/server/replica.h"
#include "librun/worker/worker_state.h"

namespace pp::run {

class Serving {
 public:
  /// The first replica brings the weights, and goes on from a checkpoint's optimizer. `state` must outlive it.
  Serving(WorkerState& state, Stage& stage);

  Replica& replica() { return *replica_; }
  /// Behind a range of training.
  void leave();
  /// No range follows.
  void close();

 private:
  /// Whether this is the first replica, which is beside the server.
  bool keeps_server() const { return state_.is_first(StageId{0}); }

  WorkerState& state_;
  Stage& stage_;
  std::optional<RemoteServer> remote_;  ///< none: the server is here
  std::optional<Replica> replica_;
};

}  // namespace pp::run
