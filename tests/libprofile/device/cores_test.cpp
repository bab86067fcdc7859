#include "libprofile/device/cores.h"

#include <sched.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/device/cores") {
  TEST_CASE("the process may use at least one core, each named once, ascending") {
    const std::vector<int> cores = usable_cores();
    REQUIRE_FALSE(cores.empty());
    CHECK(std::adjacent_find(cores.begin(), cores.end(), std::greater_equal<>()) == cores.end());
  }

  TEST_CASE("a pinned thread runs on its core, and so does a thread that it starts") {
    const int core = usable_cores().back();
    std::vector<int> allowed_in_child;
    std::thread([&] {
      pin_thread(std::vector{core});
      CHECK(usable_cores() == std::vector{core});
      CHECK(sched_getcpu() == core);
      std::thread([&] { allowed_in_child = usable_cores(); }).join();
    }).join();
    CHECK(allowed_in_child == std::vector{core});
    CHECK(usable_cores().back() == core);  // this thread keeps all it had
  }

  TEST_CASE("a core that the machine does not have is refused, and the thread keeps those it has") {
    const std::vector<int> before = usable_cores();
    CHECK_THROWS_WITH_AS(pin_thread(std::vector{CPU_SETSIZE - 1}), "cannot run on cores 1023: Invalid argument",
                         Error);
    CHECK(usable_cores() == before);
  }
}

}  // namespace pp::profile
