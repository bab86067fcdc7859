#include "librun/server/remote_server.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/errors.h"
#include "librun/transport/group_view.h"

namespace pp::run {

namespace {

using Kind = RequestHead::Kind;
using Clock = Coordinator::Clock;

constexpr Clock::duration kShortest = std::chrono::microseconds(50);

Clock::duration rest_after(Clock::duration waited) {
  return std::clamp<Clock::duration>(waited / 16, kShortest, kLongestRest);
}

}  // namespace

RequestRoom::RequestRoom(const at::Tensor& weights) {
  const profile::ChargeMemory charged{profile::MemoryAccount()};  // on its way it counts at nobody
  if (!weights.defined()) {
    all_ = at::empty({static_cast<std::int64_t>(kHeadBytes)}, at::kByte);
    return;
  }
  const auto head = static_cast<std::int64_t>(kHeadBytes / weights.element_size());
  all_ = at::empty({head + weights.numel()}, weights.scalar_type());
  vector_ = all_.narrow(0, head, weights.numel());
}

std::span<std::byte> RequestRoom::bytes() const { return bytes_of(all_); }

std::span<std::byte> RequestRoom::bytes(const RequestHead& head) const {
  return head.pushes ? bytes() : bytes().first(kHeadBytes);
}

RequestHead RequestRoom::head() const {
  RequestHead head;
  std::memcpy(&head, bytes().data(), sizeof head);
  return head;
}

void RequestRoom::set_head(const RequestHead& head) const { std::memcpy(bytes().data(), &head, sizeof head); }

using Kind = RequestHead::Kind;

RemoteServer::RemoteServer(Coordinator& run, Peers& peers, const Ends& ends, const at::Tensor& weights)
    : run_(run), peers_(peers), ends_(ends), room_(weights) {
  leaving_.keep(room_);
}

void RemoteServer::begin(int replica, const at::Tensor& into) {
  ask(replica, {.kind = Kind::begin}, nullptr, into, kWaitsToBegin);
}

void RemoteServer::finish(int replica, const FlatTensors* gradient, double rate) {
  send(replica, {.kind = Kind::finish, .rate = rate}, gradient);
}

void RemoteServer::leave(int replica, const FlatTensors* gradient, double rate, const at::Tensor& into,
                         model::Optimizer* keeper) {
  if (keeper) throw Error(ErrorKind::internal, "the server's optimizer is kept on its own rank");
  ask(replica, {.kind = Kind::leave, .rate = rate}, gradient, into, kWaitsToLeave);
}

void RemoteServer::close(int replica) { send(replica, {.kind = Kind::close}, nullptr); }

void RemoteServer::send(int replica, const RequestHead& head, const FlatTensors* gradient) {
  run_.poll(
      ends_.worker, [&] { return leaving_.done(); }, [] { return "its last push to leave"; });
  RequestHead request = head;
  request.pushes = gradient != nullptr;
  room_.set_head(request);
  if (gradient) room_.vector().copy_(gradient->flat);
  leaving_.add(peers_.send(request_address(ends_.rank, replica), room_.bytes(request), room_.bytes().size(),
                           Peers::Sent::gone));
}

void RemoteServer::ask(int replica, const RequestHead& head, const FlatTensors* gradient,
                       const at::Tensor& into, const char* waits_for) {
  RequestHead request = head;
  request.fetches = into.defined();
  Bundle answer;
  answer.keep(into);
  answer.add(peers_.receive(answer_address(ends_.rank, replica),
                            into.defined() ? bytes_of(into) : std::span<std::byte>()));
  send(replica, request, gradient);
  run_.poll(
      ends_.worker, [&] { return answer.done(); }, [&] { return waits_for; });
}

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
