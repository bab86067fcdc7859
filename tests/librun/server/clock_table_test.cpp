#include "librun/server/interleaving.h"

#include "tests/support/doctest.h"

namespace clock_table_test {

using namespace pp::run;

TEST_SUITE("librun/server/clock_table") {
  TEST_CASE("a replica may begin while it is at most the bound ahead of the slowest") {
    ClockTable clocks(3, /*bound=*/2);
    for (int i = 0; i < 2; ++i) clocks.tick(0);  // 2 0 0
    CHECK(clocks.may_begin(0));
    clocks.tick(0);  // 3 0 0
    CHECK_FALSE(clocks.may_begin(0));
    CHECK(clocks.may_begin(1));
    clocks.tick(1);  // 3 1 0: the slowest is still 2
    CHECK_FALSE(clocks.may_begin(0));
    clocks.tick(2);  // 3 1 1
    CHECK(clocks.may_begin(0));
    CHECK(clocks.least() == 1);
    CHECK(clocks.of(0) == 3);
  }

  TEST_CASE("bound 0: all in step") {
    ClockTable clocks(2, /*bound=*/0);
    clocks.tick(1);
    CHECK_FALSE(clocks.may_begin(1));
    clocks.tick(0);
    CHECK(clocks.may_begin(1));
  }

  TEST_CASE("the widest lead is that of who began, not of who finished") {
    ClockTable clocks(2, /*bound=*/1);
    clocks.begin(0), clocks.tick(0);  // 1 0
    CHECK(clocks.widest() == 0);
    clocks.begin(0), clocks.tick(0);  // began 1 ahead
    CHECK(clocks.widest() == 1);
  }
}

}  // namespace clock_table_test
