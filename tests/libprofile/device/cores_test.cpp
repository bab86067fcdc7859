#include "libprofile/device/machine.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/support/process.h"

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/device/cores") {
  TEST_CASE("the process may use at least one core, each named once") {
    std::vector<int> cores = usable_cores();
    REQUIRE_FALSE(cores.empty());
    std::ranges::sort(cores);
    CHECK(std::ranges::adjacent_find(cores) == cores.end());
  }

  TEST_CASE("hardware threads of a core that is taken stand behind free cores") {
    const pp::test::TemporaryFolder folder;
    const auto order = [&](const std::vector<std::string>& siblings) {
      std::vector<int> threads;
      for (const std::string& text : siblings) {
        const int thread = static_cast<int>(threads.size());
        const auto place = folder.path() / ("cpu" + std::to_string(thread)) / "topology";
        std::filesystem::create_directories(place);
        write_file(place / "thread_siblings_list", text + "\n");
        threads.push_back(thread);
      }
      return spread_over_cores(threads, folder.path());
    };
    CHECK(order({"0,2", "1,3", "0,2", "1,3"}) == std::vector{0, 1, 2, 3});  // as most machines number them
    CHECK(order({"0-1", "0-1", "2-3", "2-3"}) == std::vector{0, 2, 1, 3});
    CHECK(order({"0", "1"}) == std::vector{0, 1});
    CHECK(spread_over_cores({2, 3, 1}, folder.path()) == std::vector{2, 1, 3});  // of the second four
    CHECK(spread_over_cores({0, 1}, folder.path() / "missing") == std::vector{0, 1});
  }

  TEST_CASE("neighbours share a package and a cache, however the machine numbers its cores") {
    const pp::test::TemporaryFolder folder;
    // Cores 0, 2, 4, 6 of one package, 1, 3, 5, 7 of the other; in the first 0 and 4 have a cache, 2 and 6.
    for (int thread = 0; thread < 8; ++thread) {
      const auto place = folder.path() / ("cpu" + std::to_string(thread));
      for (const char* part : {"topology", "cache/index3"}) std::filesystem::create_directories(place / part);
      write_file(place / "topology/physical_package_id", std::to_string(thread % 2) + "\n");
      write_file(place / "cache/index3/shared_cpu_list", thread % 2 == 1   ? "1,3,5,7\n"
                                                         : thread % 4 == 0 ? "0,4\n"
                                                                           : "2,6\n");
    }
    CHECK(spread_over_cores({0, 1, 2, 3, 4, 5, 6, 7}, folder.path()) == std::vector{0, 4, 2, 6, 1, 3, 5, 7});
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
