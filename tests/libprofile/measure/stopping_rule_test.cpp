#include "libprofile/measure/statistics.h"

#include <vector>

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

constexpr StoppingRule kRule{.min_visits = 8,
                             .min_time = Seconds(0.5),
                             .precision = 0.02,
                             .budget = Seconds(1.0),
                             .fewest_samples = 8,
                             .fewest_first = 5};

/// Visits of one sample and 0.1 s each, half of them `low`, half `high`: with 8 values the interval is the
/// whole range.
Series two_valued(int visits, double low, double high) {
  Series series;
  for (int i = 0; i < visits; ++i) series.add(std::vector<double>{i < visits / 2 ? low : high}, Seconds(0.1));
  return series;
}

bool enough(const Series& series, double spent, const StoppingRule& rule = kRule) {
  return is_enough(rule, {&series, 1}, Seconds(spent));
}

}  // namespace

TEST_SUITE("libprofile/measure/stopping_rule") {
  TEST_CASE("a visit counts by its median") {
    Series series;
    series.add(std::vector<double>{3.0, 1.0, 2.0}, Seconds(0.1));
    series.add(std::vector<double>{5.0}, Seconds(0.2));
    CHECK(series.samples == std::vector<double>{3, 1, 2, 5});
    CHECK(series.visit_medians == std::vector<double>{2, 5});
    CHECK(series.spent.count() == doctest::Approx(0.3));
  }

  TEST_CASE("a narrow interval ends sampling, but not before the fewest visits and the least time") {
    StoppingRule rule = kRule;
    rule.fewest_samples = 5;
    CHECK_FALSE(enough(two_valued(7, 1.0, 1.0), 0.7, rule));
    CHECK(enough(two_valued(8, 1.0, 1.0), 0.8, rule));
    rule.min_time = Seconds(0.85);
    CHECK_FALSE(enough(two_valued(8, 1.0, 1.0), 0.8, rule));
    CHECK(enough(two_valued(9, 1.0, 1.0), 0.9, rule));
  }

  TEST_CASE("the half-width is compared with the precision asked for") {
    // Range 1.00 to 1.04, median 1.02: half-width 0.02 / 1.02 = 1.96 %; to 1.05: 0.025 / 1.025 = 2.4 %.
    CHECK(enough(two_valued(8, 1.0, 1.04), 0.8));
    CHECK_FALSE(enough(two_valued(8, 1.0, 1.05), 0.8));
  }

  TEST_CASE("a spent budget ends sampling, never with fewer than the fewest samples") {
    CHECK_FALSE(enough(two_valued(7, 1.0, 2.0), 9.0));
    CHECK(enough(two_valued(8, 1.0, 2.0), 1.0));
    CHECK_FALSE(enough(two_valued(8, 1.0, 2.0), 0.9));
  }

  TEST_CASE("visits with a first sample are counted apart") {
    Series series;
    series.with_first = true;
    for (int i = 0; i < 4; ++i) series.add(std::vector<double>{1.0, 2.0}, Seconds(0.1));
    CHECK(missing_samples(kRule, series) == 0);
    CHECK(missing_firsts(kRule, series) == 1);
    CHECK_FALSE(enough(series, 9.0));
    series.add(std::vector<double>{1.0}, Seconds(0.1));
    CHECK(enough(series, 9.0));
    series.with_first = false;
    CHECK(missing_firsts(kRule, series) == 0);
  }

  TEST_CASE("series that take turns end together") {
    const std::vector<Series> both{two_valued(8, 1.0, 1.0), two_valued(8, 1.0, 2.0)};
    CHECK_FALSE(is_enough(kRule, both, Seconds(0.9)));  // the second is not precise
    CHECK(is_enough(kRule, both, Seconds(1.0)));
    const std::vector<Series> lacking{two_valued(8, 1.0, 1.0), two_valued(3, 1.0, 1.0)};
    CHECK_FALSE(is_enough(kRule, lacking, Seconds(9.0)));
  }
}

}  // namespace pp::profile
