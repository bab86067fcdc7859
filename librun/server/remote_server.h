// A replica's line to a server on another rank.
#pragma once

#include <cstdint>

#include "libprofile/core/ids.h"
#include "librun/server/requests.h"
#include "librun/server/server_access.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/group_view.h"

namespace pp::run {

/// Of one worker's thread. What it pushes is copied and on its way while the replica goes on.
class RemoteServer final : public ServerAccess {
 public:
  struct Ends {
    WorkerId worker{};  ///< the replica's
    int rank = 0;       ///< the server's
  };
  /// `run` and `peers` must outlive it. `weights`: the replica's, [n].
  RemoteServer(Coordinator& run, Peers& peers, const Ends& ends, const at::Tensor& weights);

  void begin(int replica, const at::Tensor& into) override;
  void finish(int replica, const FlatTensors* gradient, double rate) override;
  void leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
             model::Optimizer* keeper) override;
  void close(int replica) override;

 private:
  /// Returns when it has been written down.
  void send(int replica, const RequestHead& head, const FlatTensors* gradient);
  /// Sends it and waits for the answer, which comes `into`, where defined.
  void ask(int replica, const RequestHead& head, const FlatTensors* gradient, const at::Tensor& into,
           const char* waits_for);

  Coordinator& run_;
  Peers& peers_;
  Ends ends_;
  RequestRoom room_;
  Bundle leaving_;  ///< the last request
};

}  // namespace pp::run
