// What a replica asks of its parameter server, wherever that is: beside it (parameter_server.h) or on
// another rank (remote_server.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "libprofile/core/units.h"
#include "libprofile/model/optimizer.h"
#include "librun/stage/flat_layout.h"

namespace pp::run {

/// What a replica waits for, in words.
inline constexpr auto kWaitsToBegin = "slower replicas, or its turn at the server";
inline constexpr auto kWaitsToLeave = "the other replicas";

/// Called by a replica's own thread with its place among the replicas. Waits throw as Monitor::wait does.
class ServerAccess {
 public:
  virtual ~ServerAccess() = default;

  /// It begins with a mini-batch: waits until its clock allows it and its turn has come, then fetches `into`,
  /// where defined.
  virtual void begin(int replica, const at::Tensor& into) = 0;
  /// It has finished it, and pushes `gradient`, where there is one; behind the call that may change.
  virtual void finish(int replica, const FlatTensors* gradient, double rate) = 0;
  /// It has no mini-batch left: brings what it has not pushed, where there is something, and waits until all
  /// replicas have left. What is left over is pushed in replica order; then it fetches the weights of all, and
  /// `keeper`, where it is not null, gets a copy of what the server's optimizer remembers: for a replica beside
  /// the server alone.
  virtual void leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
                     model::Optimizer* keeper) = 0;
  /// Nothing follows.
  virtual void close(int /*replica*/) {}
};

}  // namespace pp::run
