#include "librun/server/desk.h"

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

ServerDesk::ServerDesk(Coordinator& run, ParameterServer& server, Peers& peers,
                       const std::vector<Visitor>& visitors)
    : run_(run),
      server_(server),
      peers_(peers),
      visitors_(visitors),
      visited_by_(visitors.size()),
      monitor_(run) {
  thread_.add([this] { serve(); });
}

ServerDesk::~ServerDesk() {
  {
    const Monitor::Lock lock = monitor_.lock();
    closed_ = true;
  }
  monitor_.notify();
}

void ServerDesk::open(FlatTensors layout) {
  {
    const Monitor::Lock lock = monitor_.lock();
    layout_ = std::move(layout);
  }
  monitor_.notify();
}

void ServerDesk::await_closed(WorkerId caller) {
  run_.poll(
      caller, [&] { return visited_by_ == 0; }, [] { return "replicas of other ranks to leave the server"; });
}

void ServerDesk::serve() noexcept {
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

void ServerDesk::work() {
  profile::enter_device(at::kCPU, /*threads=*/1);
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  if (layout_) set_up(*layout_);
  Clock::time_point last = Clock::now();
  while (visited_by_ > 0 && !closed_ && !run_.stopped()) {
    bool busy = false;
    for (Counter& counter : counters_) busy |= look(counter);
    const Clock::time_point now = Clock::now();
    if (busy) last = now;
    if (!busy) std::this_thread::sleep_for(rest_after(now - last));
  }
}

void ServerDesk::set_up(const FlatTensors& layout) {
  for (const Visitor& visitor : visitors_) {
    Counter& counter = counters_.emplace_back(visitor, RequestRoom(layout.flat));
    if (layout.flat.defined()) {
      counter.gradient = with_places(counter.room.vector(), layout);
      counter.weights = at::empty_like(layout.flat);
    }
    counter.coming.keep(counter.room);
    counter.leaving.keep(counter.weights);
    expect_request(counter);
  }
}

void ServerDesk::expect_request(Counter& counter) {
  const auto [replica, rank] = counter.visitor;
  counter.coming.add(peers_.receive(request_address(rank, replica), counter.room.bytes()));
}

bool ServerDesk::look(Counter& counter) {
  if (counter.closed || !counter.coming.done() || !counter.leaving.done()) return false;
  const RequestHead request = counter.room.head();
  if (!answer(counter, request)) return false;
  if (request.kind == Kind::begin || request.kind == Kind::leave) {
    const auto [replica, rank] = counter.visitor;
    const auto bytes = request.fetches ? bytes_of(counter.weights) : std::span<std::byte>();
    counter.leaving.add(peers_.send(answer_address(rank, replica), bytes, bytes.size(), Peers::Sent::gone));
  }
  if (!counter.closed) expect_request(counter);
  return true;
}

bool ServerDesk::answer(Counter& counter, const RequestHead& request) {
  const int replica = counter.visitor.replica;
  const at::Tensor into = request.fetches ? counter.weights : at::Tensor();
  const FlatTensors* const gradient = request.pushes ? &counter.gradient : nullptr;
  switch (request.kind) {
    case Kind::begin: return server_.try_begin(replica, into);
    case Kind::finish: return server_.try_finish(replica, gradient, request.rate);
    case Kind::leave:
      if (!std::exchange(counter.arrived, true)) server_.arrive(replica, gradient, request.rate);
      if (!server_.try_depart(replica, into)) return false;
      counter.arrived = false;
      return true;
    case Kind::close:
      counter.closed = true;
      --visited_by_;
      return true;
  }
  return false;
}

}  // namespace pp::run
