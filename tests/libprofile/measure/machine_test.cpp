#include "libprofile/measure/machine.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/measure/machine") {
  TEST_CASE("the process may use at least one core, each named once, ascending") {
    const std::vector<int> cores = usable_cores();
    REQUIRE_FALSE(cores.empty());
    CHECK(std::adjacent_find(cores.begin(), cores.end(), std::greater_equal<>()) == cores.end());
  }

  TEST_CASE("a pinned thread runs on its core, and so does a thread that it starts") {
    const int core = usable_cores().back();
    std::vector<int> allowed_in_child;
    std::thread([&] {
      pin_thread({core});
      CHECK(usable_cores() == std::vector{core});
      CHECK(sched_getcpu() == core);
      std::thread([&] { allowed_in_child = usable_cores(); }).join();
    }).join();
    CHECK(allowed_in_child == std::vector{core});
    CHECK(usable_cores().back() == core);  // this thread keeps all it had
  }

  TEST_CASE("memory and processor are known") {
    CHECK(machine_memory() > Bytes(std::int64_t{64} << 20));
    CHECK_FALSE(cpu_name().empty());
  }
}

}  // namespace pp::profile
