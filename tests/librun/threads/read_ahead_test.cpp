#include "librun/threads/read_ahead.h"

#include <atomic>
#include <stdexcept>
#include <thread>

#include "librun/threads/watchdog.h"
#include "tests/support/doctest.h"

namespace read_ahead_test {

using namespace pp;
using namespace pp::run;

namespace {

constexpr WorkerId kWorker{0};

std::string nothing() { return "the next number"; }

/// Counts up, `count` numbers.
ReadAhead<int>::Make numbers(std::atomic<int>& made, int count) {
  return [&made, count]() -> std::optional<int> {
    if (made == count) return std::nullopt;
    return made++;
  };
}

int next(ReadAhead<int>& ahead) {
  ahead.await(nothing);
  return ahead.take();
}

}  // namespace

TEST_SUITE("librun/threads/read_ahead") {
  TEST_CASE("what is made comes in order, from another thread that was entered first") {
    Coordinator run(1);
    std::atomic<int> made = 0;
    std::thread::id entered, here = std::this_thread::get_id();
    ReadAhead<int> ahead(run, kWorker, 3, [&] { entered = std::this_thread::get_id(); });
    ahead.begin(numbers(made, 1000));
    for (int i = 0; i < 1000; ++i) CHECK(next(ahead) == i);
    CHECK(entered != here);
  }

  TEST_CASE("no more than the limit is made in advance") {
    Coordinator run(1);
    std::atomic<int> made = 0;
    ReadAhead<int> ahead(run, kWorker, 3, [] {});
    ahead.begin(numbers(made, 1000));
    for (int taken = 1; taken <= 20; ++taken) {
      next(ahead);
      while (made < taken + 3) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      CHECK(made == taken + 3);
    }
  }

  TEST_CASE("a new sequence drops what the last one left, whose maker is not called again") {
    Coordinator run(1);
    std::atomic<int> first = 0, second = 0;
    ReadAhead<int> ahead(run, kWorker, 2, [] {});
    ahead.begin(numbers(first, 1000));
    CHECK(next(ahead) == 0);
    ahead.begin(numbers(second, 2));
    const int left = first;
    CHECK(next(ahead) == 0);
    CHECK(next(ahead) == 1);
    CHECK(first == left);
  }

  TEST_CASE("an error comes in its place, and nothing is made after it") {
    Coordinator run(1);
    std::atomic<int> made = 0;
    ReadAhead<int> ahead(run, kWorker, 4, [] {});
    ahead.begin([&]() -> std::optional<int> {
      if (made++ == 2) throw std::runtime_error("third");
      return 7;
    });
    CHECK(next(ahead) == 7);
    CHECK(next(ahead) == 7);
    CHECK_THROWS_WITH(next(ahead), "third");
    CHECK(made == 3);
  }

  TEST_CASE("an error on the thread's way in is the first that is taken") {
    Coordinator run(1);
    ReadAhead<int> ahead(run, kWorker, 4, [] { throw std::runtime_error("no device"); });
    ahead.begin([]() -> std::optional<int> { return 1; });
    CHECK_THROWS_WITH(next(ahead), "no device");
  }

  TEST_CASE("a stop wakes who waits for a slow maker, and the report of a stall says so") {
    Coordinator run(1);
    std::atomic<bool> released = false;
    ReadAhead<int> ahead(run, kWorker, 1, [] {});
    ahead.begin([&]() -> std::optional<int> {
      while (!released) std::this_thread::yield();
      return 1;
    });
    const Watchdog watchdog(run, Seconds(0.1));
    CHECK_THROWS_AS(ahead.await(nothing), Stopped);
    released = true;
    std::string report;
    try {
      std::rethrow_exception(run.error());
    } catch (const std::exception& error) {
      report = error.what();
    }
    CHECK(report.ends_with("worker 0: between steps, waits for the next number"));
  }
}

}  // namespace read_ahead_test
