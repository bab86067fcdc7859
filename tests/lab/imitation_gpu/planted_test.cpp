// The imitation finds orders that are missing: planted.cpp under it. What reads too early gets the old number
// where work is done late; the race detector says so in any case.
#include <string>
#include <vector>

#include "tests/support/doctest.h"
#include "tests/support/process.h"

namespace {

/// What the case prints, and " race" where the process ends for one.
std::string run(const std::string& which, const std::string& order) {
  const pp::test::Outcome planted =
      pp::test::run_program("/usr/bin/env",
                            {"LD_PRELOAD=" PP_IMITATION_GPU, "LD_LIBRARY_PATH=" PP_IMITATION_DRIVER,
                             "PP_IMITATION_ORDER=" + order, PP_PLANTED, which},
                            "/");
  INFO(planted.err);
  REQUIRE((planted.code == 0 || planted.code == 70));
  return planted.out.substr(0, 1) + (planted.code == 70 ? " race" : "");
}

}  // namespace

TEST_SUITE("imitation_gpu/planted") {
  TEST_CASE("a stream that does not wait for another one reads what was there before") {
    for (const std::string order : {"at_once", "late", "last"}) CHECK(run("event", order) == "7");
    CHECK(run("nothing", "at_once") == "7 race");
    CHECK(run("nothing", "late") == "1 race");
  }

  TEST_CASE("streams keep in step with the default stream unless they were made otherwise") {
    CHECK(run("blocking", "late") == "7");
    CHECK(run("non-blocking", "late") == "1 race");
  }

  TEST_CASE("a copy reads pageable memory at once, and pinned memory when its stream comes to it") {
    CHECK(run("host", "late") == "7");
    CHECK(run("pinned", "at_once") == "7");
    CHECK(run("pinned", "late") == "9");
  }
}
