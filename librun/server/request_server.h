// Where a parameter server serves replicas of other ranks, by a thread of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "librun/server/parameter_server.h"
#include "librun/server/requests.h"
#include "librun/threads/threads.h"
#include "librun/transport/group_view.h"

namespace pp::run {

/// A replica of another rank.
struct RemoteReplica {
  int replica = 0;  ///< its place among all
  int rank = 0;
};

/// Looks for requests after a sixteenth of the time that it has waited for one, 50 us to 8 ms, so that it costs
/// a core a few hundredths and a mini-batch as little. Holds two vectors of the weights' length for each
/// remote.
class RequestServer {
 public:
  /// All must outlive it.
  RequestServer(Coordinator& run, ParameterServer& server, Peers& peers,
                const std::vector<RemoteReplica>& remotes);
  ~RequestServer();
  RequestServer(const RequestServer&) = delete;
  RequestServer& operator=(const RequestServer&) = delete;

  /// Begins, when the server has its weights; `layout`: vectors like them.
  void open(FlatTensors layout);
  /// Waits until all remotes have closed their lines. Throws as Monitor::wait does.
  void await_closed(WorkerId caller);

 private:
  /// A remote's end here.
  struct Connection {
    RemoteReplica remote;
    RequestRoom room;
    FlatTensors gradient;  ///< in the room
    at::Tensor weights;    ///< for its answers
    Bundle coming, leaving;
    bool arrived = false;  ///< in the first half of a leave
    bool closed = false;
  };

  void serve() noexcept;
  void work();
  void set_up(const FlatTensors& layout);
  void expect_request(Connection& connection);
  /// Whether something has come or was answered.
  bool look(Connection& connection);
  /// Whether the server was ready for it.
  bool answer(Connection& connection, const RequestHead& request);

  Coordinator& run_;
  ParameterServer& server_;
  Peers& peers_;
  std::vector<RemoteReplica> remotes_;
  std::deque<Connection> connections_;  ///< the thread's
  std::atomic<std::size_t> left_open_;
  std::atomic<bool> closed_ = false;
  Monitor monitor_;  ///< of what follows
  std::optional<FlatTensors> layout_;
  Threads thread_;
};

}  // namespace pp::run
