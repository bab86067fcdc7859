// Two threads that hand payloads back and forth over pp-run's queues, and what each hand-over takes. Free of
// Torch; internal to the link meter.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "librun/links/link_fit.h"
#include "librun/threads/message_queue.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Threads that enter their devices and then do the same work; the first error of any leaves run().
class Team {
 public:
  /// `enter(me)` is the first thing that thread `me` does in each run().
  Team(int size, std::function<void(int)> enter) : coordinator_(size), enter_(std::move(enter)) {}

  Coordinator& coordinator() { return coordinator_; }

  /// body(me) on every thread.
  template <class Body>
  void run(const Body& body) {
    Threads threads;
    try {
      for (int me = 0; me < coordinator_.workers(); ++me) threads.add([&, me] { guarded(me, body); });
    } catch (...) {
      coordinator_.stop(std::current_exception());
    }
    threads.join();
    if (const std::exception_ptr error = coordinator_.error()) std::rethrow_exception(error);
  }

 private:
  template <class Body>
  void guarded(int me, const Body& body) {
    try {
      enter_(me);
      body(me);
    } catch (const Stopped&) {
      return;  // another thread has the error
    } catch (...) {
      coordinator_.stop(std::current_exception());
    }
  }

  Coordinator coordinator_;
  std::function<void(int)> enter_;
};

/// Plays on a team of two. `make(me, i)` gives the payload of round i before its clock starts, complete;
/// `take(me, payload)` is what receiving it costs. A hand-over lasts from when the payload is put into the
/// queue until take() returns on the other side, which was waiting. Seconds of each counted one, both
/// directions.
template <class Payload, class Make, class Take>
std::vector<double> play_ping_pong(Team& team, const LinkSweep& sweep, const Make& make, const Take& take) {
  using Clock = Coordinator::Clock;
  struct Message {
    Payload payload;
    Clock::time_point sent;
  };
  using Queue = MessageQueue<Message>;
  std::array<Queue, 2> queues{Queue(team.coordinator(), WorkerId{1}, WorkerId{0}, /*window=*/2),
                              Queue(team.coordinator(), WorkerId{0}, WorkerId{1}, /*window=*/2)};
  std::array<std::vector<double>, 2> times;
  team.run([&](int me) {
    const auto mine = static_cast<std::size_t>(me);
    const auto send = [&](int i) {
      Payload payload = make(me, i);
      queues[1 - mine].put(
          i,
          [&](Message& message) {
            message = {std::move(payload), Clock::now()};
          },
          [] { return "the other thread to take what it was given"; });
    };
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      if (me == 0) send(i);
      Message message = queues[mine].take(
          i, [](Message& arrived) { return std::move(arrived); }, [] { return "the other thread"; });
      take(me, std::move(message.payload));
      const Seconds time = Clock::now() - message.sent;
      if (i >= sweep.warm_up) times[mine].push_back(time.count());
      if (me == 1) send(i);
    }
  });
  times[0].insert(times[0].end(), times[1].begin(), times[1].end());
  return times[0];
}

}  // namespace pp::run
