// Who waits for what in a run, stalls and stops; threads that the system refuses.
#include "librun/threads/coordinator.h"

#include <atomic>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "libprofile/core/error.h"
#include "librun/threads/message_queue.h"
#include "librun/threads/threads.h"
#include "librun/threads/watchdog.h"
#include "librun/transport/channel.h"
#include "tests/support/doctest.h"

namespace coordinator_test {

using namespace pp;
using namespace pp::run;

namespace {

const plan::Op kForward{plan::OpKind::forward, StageId{0}, 4};
const plan::Op kBackward{plan::OpKind::backward, StageId{1}, 1};
const Channel kChannel{
    .from = WorkerId{1}, .to = WorkerId{0}, .direction = Direction::gradient, .layer = 3, .per_step = 4};

// What worker 1 has for worker 0, in kChannel.
struct Queue : MessageQueue<int> {
  explicit Queue(Coordinator& coordinator) : MessageQueue(coordinator, kChannel.from, kChannel.to, 1) {}
  void put(int value) {
    MessageQueue::put(
        1, [&](int& message) { message = value; }, [] { return "room"; });
  }
  int take() {
    return MessageQueue::take(
        1, [](int message) { return message; }, [] { return describe(kChannel, 1); });
  }
};

// What leaves `body`, as text.
template <class Body>
std::string outcome(Body&& body) {
  try {
    body();
    return "returned";
  } catch (const Stopped&) {
    return "stopped";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_SUITE("librun/threads/coordinator") {
  TEST_CASE("a stall names every worker's operation and what it waits for") {
    Coordinator coordinator(3);
    Queue queue(coordinator);
    coordinator.announce(WorkerId{0}, kBackward);
    coordinator.announce(WorkerId{1}, kForward);
    const Watchdog watchdog(coordinator, Seconds(0.1));
    CHECK(outcome([&] { queue.take(); }) == "stopped");
    CHECK(outcome([&] { std::rethrow_exception(coordinator.error()); }) ==
          "stalled: no operation has ended for 100 ms; raise the stall timeout if single operations take that "
          "long\n"
          "  worker 0: B1.1, waits for the gradient of layer 3 for micro-batch 1 of step 1 from worker 1\n"
          "  worker 1: F0.4, running\n"
          "  worker 2: between steps, running");
  }

  TEST_CASE("workers that compute, alone or not, and never come back stall too") {
    for (const int workers : {1, 2}) {
      Coordinator coordinator(workers);
      Monitor monitor(coordinator);
      const Watchdog watchdog(coordinator, Seconds(0.05));
      Monitor::Lock lock = monitor.lock();
      CHECK(outcome([&] {
              monitor.wait_driver(
                  lock, [] { return false; }, [] { return false; });
            }) == "stopped");
    }
  }

  TEST_CASE("a wait outlasts the timeout while others make progress") {
    Coordinator coordinator(2);
    Queue queue(coordinator);
    const Watchdog watchdog(coordinator, Seconds(2));
    std::thread other([&] {  // 25 operations of 0.1 s: more than a timeout, which is long beside one
      for (int i = 0; i < 25; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        coordinator.announce(WorkerId{1}, kForward);
      }
      queue.put(7);
    });
    CHECK(outcome([&] { CHECK(queue.take() == 7); }) == "returned");
    other.join();
  }

  TEST_CASE("stop wakes every waiting worker and the driver, and keeps the first error") {
    Coordinator coordinator(2);
    Queue queue(coordinator);
    Barrier barrier(coordinator, 2);
    std::string taking, meeting;
    std::thread first([&] { taking = outcome([&] { queue.take(); }); });
    std::thread second([&] { meeting = outcome([&] { barrier.arrive_and_wait(WorkerId{1}, "the other"); }); });
    std::thread failing([&] {
      coordinator.stop(std::make_exception_ptr(Error(ErrorKind::run, "first")));
      coordinator.stop(std::make_exception_ptr(Error(ErrorKind::run, "second")));
    });
    CHECK(outcome([&] {
            Monitor monitor(coordinator);
            Monitor::Lock lock = monitor.lock();
            monitor.wait_driver(
                lock, [] { return false; }, [] { return false; });
          }) == "stopped");
    first.join();
    second.join();
    failing.join();
    CHECK(taking == "stopped");
    CHECK(meeting == "stopped");
    CHECK(outcome([&] { std::rethrow_exception(coordinator.error()); }) == "first");
  }

  TEST_CASE("a worker that never waits ends with its next operation once the run is stopped") {
    Coordinator coordinator(1);
    CHECK(outcome([&] { coordinator.announce(WorkerId{0}, kForward); }) == "returned");
    coordinator.stop(nullptr);
    CHECK(outcome([&] { coordinator.announce(WorkerId{0}, kBackward); }) == "stopped");
  }

  TEST_CASE("while somebody is in a phase, waiting is no stall, however long") {
    Coordinator coordinator(2);
    Queue queue(coordinator);
    const Watchdog watchdog(coordinator, Seconds(0.1));
    std::string taking;
    std::optional<Phase> busy(std::in_place, coordinator);
    std::thread taker([&] { taking = outcome([&] { queue.take(); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));  // ten timeouts
    queue.put(7);
    taker.join();
    CHECK(taking == "returned");
    busy.reset();
    CHECK(outcome([&] { queue.take(); }) == "stopped");
  }

  TEST_CASE("the driver gives up a wait when it is told to, without an error") {
    Coordinator coordinator(1);
    Monitor monitor(coordinator);
    Monitor::Lock lock = monitor.lock();
    int asked = 0;
    CHECK_FALSE(monitor.wait_driver(
        lock, [] { return false; }, [&] { return ++asked == 3; }));
    CHECK(monitor.wait_driver(
        lock, [] { return true; }, [] { return true; }));
  }

  TEST_CASE("a barrier lets nobody into round n+1 before all have left round n") {
    constexpr int kWorkers = 3, kRounds = 200;
    Coordinator coordinator(kWorkers);
    Barrier barrier(coordinator, 3);
    std::atomic<int> arrived = 0, wrong = 0;
    std::vector<std::thread> threads;
    for (int w = 0; w < kWorkers; ++w) {
      threads.emplace_back([&, w] {
        for (int round = 1; round <= kRounds; ++round) {
          ++arrived;
          barrier.arrive_and_wait(WorkerId{w}, "the others");
          if (arrived < round * kWorkers) ++wrong;  // all of this round have arrived
          barrier.arrive_and_wait(WorkerId{w}, "the others");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(arrived == kWorkers * kRounds);
  }

  TEST_CASE("a thread that the system refuses is an error with a remedy; the others are joined") {
    int wanted = 0;
    std::atomic<bool> told = false, ended = false;
    const auto two = [&](Threads::Body body) {
      if (++wanted > 2) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(body));
    };
    {
      Threads threads(two);
      threads.add([] {});
      threads.add([&] {
        told.wait(false);
        ended = true;
      });
      CHECK_THROWS_WITH_AS(threads.add([] {}),
                           "thread 3 of the run cannot be started: Resource temporarily unavailable; plan for "
                           "fewer devices, or raise the limit of processes (ulimit -u)",
                           Error);
      told = true;
      told.notify_all();
    }
    CHECK(ended);
  }

  TEST_CASE("the first thread that has not ended is named") {
    std::atomic<bool> told = false;
    Threads threads;
    threads.add([] {});
    threads.add([&] { told.wait(false); });
    threads.add([&] { told.wait(false); });
    CHECK(threads.join_within(Seconds(0.5)) == std::optional<std::size_t>(1));
    told = true;
    told.notify_all();
    CHECK(threads.join_within(Seconds(60)) == std::nullopt);
  }
}

}  // namespace coordinator_test
