// The cross-checks of random problems, a sample of each.
#include "tests/libplan/search/cross_checks.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/cross_checks");

namespace pp::plan {

TEST_CASE("bounds, refusals, prices and steps of random problems agree with what the planner did not write") {
  for (const test::CrossCheck& check : test::kCrossChecks) {
    CAPTURE(check.name);
    for (int seed = 1; seed <= check.sample; ++seed) {
      CAPTURE(seed);
      test::Random random(static_cast<std::uint64_t>(seed));
      CHECK(check.run(random) == "");
    }
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
