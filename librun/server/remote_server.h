// A parameter server that serves replicas of other ranks: the replica's line to it, the server's thread, and
// what travels between them. A request is one message: a head, and behind it what is pushed. To begin and to
// leave are answered, with the weights where they are fetched, else with an empty message; nothing waits for
// what is pushed.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "libprofile/core/index.h"
#include "librun/server/parameter_server.h"
#include "librun/server/server_access.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"
#include "librun/transport/group_view.h"
#include "librun/transport/peers.h"

namespace pp::run {

struct RequestHead {
  enum class Kind : std::int32_t { begin, finish, leave, close };
  Kind kind = Kind::begin;
  bool fetches = false;
  bool pushes = false;
  double rate = 0;
};

/// In front of the vector, whose elements stay aligned.
inline constexpr std::size_t kHeadBytes = 64;
static_assert(sizeof(RequestHead) <= kHeadBytes);

/// Room for a request that pushes a vector like `weights` ([n], may be undefined): the head's bytes, then the
/// vector.
class RequestRoom {
 public:
  explicit RequestRoom(const at::Tensor& weights);

  /// Bytes of a request, of the largest one by default.
  std::span<std::byte> bytes() const;
  std::span<std::byte> bytes(const RequestHead& head) const;
  /// [n]; undefined where the weights are.
  const at::Tensor& vector() const { return vector_; }

  RequestHead head() const;
  void set_head(const RequestHead& head) const;

 private:
  at::Tensor all_, vector_;
};

inline Peers::Address request_address(int rank, int replica) {
  return {Peers::Lane::server, rank, 2 * replica};
}
inline Peers::Address answer_address(int rank, int replica) {
  return {Peers::Lane::server, rank, 2 * replica + 1};
}

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
