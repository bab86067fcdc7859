#include "librun/server/request_server.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/errors.h"

namespace pp::run {

namespace {

using Kind = RequestHead::Kind;
using Clock = Coordinator::Clock;

constexpr Clock::duration kShortest = std::chrono::microseconds(50);

Clock::duration rest_after(Clock::duration waited) {
  return std::clamp<Clock::duration>(waited / 16, kShortest, kLongestRest);
}

}  // namespace

RequestServer::RequestServer(Coordinator& run, ParameterServer& server, Peers& peers,
                             const std::vector<RemoteReplica>& remotes)
    : run_(run), server_(server), peers_(peers), remotes_(remotes), left_open_(remotes.size()), monitor_(run) {
  thread_.add([this] { serve(); });
}

RequestServer::~RequestServer() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  monitor_.notify();
}

void RequestServer::open(FlatTensors layout) {
  {
    const Monitor::Lock lock = monitor_.lock();
    layout_ = std::move(layout);
  }
  monitor_.notify();
}

void RequestServer::await_closed(WorkerId caller) {
  run_.poll(
      caller, [&] { return left_open_ == 0; }, [] { return "replicas of other ranks to leave the server"; });
}

void RequestServer::serve() noexcept {
  {
    Monitor::Lock lock = monitor_.lock();
    if (!monitor_.wait_helper(lock, [&] { return layout_ || closed_; })) return;
  }
  try {
    model::detail::guarded([] { return "the parameter server"; }, [&] { work(); });
  } catch (...) {
    run_.stop(std::current_exception());
  }
}

void RequestServer::work() {
  profile::enter_device(at::kCPU, /*threads=*/1);
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  if (layout_) set_up(*layout_);
  Clock::time_point last = Clock::now();
  while (left_open_ > 0 && !closed_ && !run_.stopped()) {
    bool busy = false;
    for (Connection& connection : connections_) busy |= look(connection);
    const Clock::time_point now = Clock::now();
    if (busy) last = now;
    if (!busy) std::this_thread::sleep_for(rest_after(now - last));
  }
}

void RequestServer::set_up(const FlatTensors& layout) {
  for (const RemoteReplica& remote : remotes_) {
    Connection& connection = connections_.emplace_back(remote, RequestRoom(layout.flat));
    if (layout.flat.defined()) {
      connection.gradient = with_places(connection.room.vector(), layout);
      connection.weights = at::empty_like(layout.flat);
    }
    connection.coming.keep(connection.room);
    connection.leaving.keep(connection.weights);
    expect_request(connection);
  }
}

void RequestServer::expect_request(Connection& connection) {
  const auto [replica, rank] = connection.remote;
  connection.coming.add(peers_.receive(request_address(rank, replica), connection.room.bytes()));
}

bool RequestServer::look(Connection& connection) {
  if (connection.closed || !connection.coming.done() || !connection.leaving.done()) return false;
  const RequestHead request = connection.room.head();
  if (!answer(connection, request)) return false;
  if (request.kind == Kind::begin || request.kind == Kind::leave) {
    const auto [replica, rank] = connection.remote;
    const auto bytes = request.fetches ? bytes_of(connection.weights) : std::span<std::byte>();
    connection.leaving.add(peers_.send(answer_address(rank, replica), bytes, bytes.size(), Peers::Sent::gone));
  }
  if (!connection.closed) expect_request(connection);
  return true;
}

bool RequestServer::answer(Connection& connection, const RequestHead& request) {
  const int replica = connection.remote.replica;
  const at::Tensor into = request.fetches ? connection.weights : at::Tensor();
  const FlatTensors* const gradient = request.pushes ? &connection.gradient : nullptr;
  switch (request.kind) {
    case Kind::begin: return server_.try_begin(replica, into);
    case Kind::finish: return server_.try_finish(replica, gradient, request.rate);
    case Kind::leave:
      if (!std::exchange(connection.arrived, true)) server_.arrive(replica, gradient, request.rate);
      if (!server_.try_depart(replica, into)) return false;
      connection.arrived = false;
      return true;
    case Kind::close:
      connection.closed = true;
      --left_open_;
      return true;
  }
  return false;
}

}  // namespace pp::run
