#include "libprofile/measure/stopping_rule.h"

#include <vector>

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

constexpr StoppingRule kRule{.min_samples = 8, .max_samples = 20, .precision = 0.02, .budget = Seconds(1.0)};

/// Half of them `low`, half `high`: with 8 values the interval is the whole range.
std::vector<double> two_valued(int count, double low, double high) {
  std::vector<double> values(static_cast<std::size_t>(count), low);
  for (std::size_t i = values.size() / 2; i < values.size(); ++i) values[i] = high;
  return values;
}

}  // namespace

TEST_SUITE("libprofile/measure/stopping_rule") {
  TEST_CASE("a narrow interval ends sampling, but not before the smallest number of samples") {
    CHECK(decide(kRule, two_valued(7, 1.0, 1.0), Seconds(0.1)) == Verdict::more);
    CHECK(decide(kRule, two_valued(8, 1.0, 1.0), Seconds(0.1)) == Verdict::precise);
  }

  TEST_CASE("the half-width is compared with the precision asked for") {
    // Range 1.00 to 1.04, median 1.02: half-width 0.02 / 1.02 = 1.96 %; to 1.05: 0.025 / 1.025 = 2.4 %.
    CHECK(decide(kRule, two_valued(8, 1.0, 1.04), Seconds(0.1)) == Verdict::precise);
    CHECK(decide(kRule, two_valued(8, 1.0, 1.05), Seconds(0.1)) == Verdict::more);
  }

  TEST_CASE("a spent budget ends sampling with five samples, never with fewer") {
    CHECK(decide(kRule, two_valued(4, 1.0, 2.0), Seconds(9.0)) == Verdict::more);
    CHECK(decide(kRule, two_valued(5, 1.0, 2.0), Seconds(1.0)) == Verdict::budget_spent);
    CHECK(decide(kRule, two_valued(5, 1.0, 2.0), Seconds(0.9)) == Verdict::more);
  }

  TEST_CASE("the largest number of samples ends sampling in any case") {
    CHECK(decide(kRule, two_valued(19, 1.0, 2.0), Seconds(0.5)) == Verdict::more);
    CHECK(decide(kRule, two_valued(20, 1.0, 2.0), Seconds(0.5)) == Verdict::enough);
  }
}

}  // namespace pp::profile
