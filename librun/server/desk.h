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
#include "librun/transport/circle.h"
#include "librun/worker/threads.h"

namespace pp::run {

/// A replica of another rank.
struct Visitor {
  int replica = 0;  ///< its place among all
  int rank = 0;
};

/// Looks for requests after a sixteenth of the time that it has waited for one, 50 us to 4 ms, so that it costs
/// a core a few hundredths and a mini-batch as little. Holds two vectors of the weights' length for each
/// visitor.
class ServerDesk {
 public:
  /// All must outlive it.
  ServerDesk(Coordinator& run, ParameterServer& server, Peers& peers, const std::vector<Visitor>& visitors);
  ~ServerDesk();
  ServerDesk(const ServerDesk&) = delete;
  ServerDesk& operator=(const ServerDesk&) = delete;

  /// Begins, when the server has its weights; `layout`: vectors like them.
  void open(FlatTensors layout);
  /// Waits until all visitors have closed their lines. Throws as Monitor::wait does.
  void await_closed(WorkerId caller);

 private:
  /// A visitor's end here.
  struct Counter {
    Visitor visitor;
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
  void expect_request(Counter& counter);
  /// Whether something has come or was answered.
  bool look(Counter& counter);
  /// Whether the server was ready for it.
  bool answer(Counter& counter, const RequestHead& request);

  Coordinator& run_;
  ParameterServer& server_;
  Peers& peers_;
  std::vector<Visitor> visitors_;
  std::deque<Counter> counters_;  ///< the thread's
  std::atomic<std::size_t> visited_by_;
  std::atomic<bool> closed_ = false;
  Monitor monitor_;  ///< of what follows
  std::optional<FlatTensors> layout_;
  Threads thread_;
};

}  // namespace pp::run
