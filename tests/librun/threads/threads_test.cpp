#include "librun/threads/threads.h"

#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace threads_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/threads/threads") {
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

}  // namespace threads_test
