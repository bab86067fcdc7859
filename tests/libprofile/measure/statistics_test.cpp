#include "libprofile/measure/statistics.h"

#include <array>
#include <cmath>
#include <numeric>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

}  // namespace

TEST_SUITE("libprofile/measure/statistics") {
  TEST_CASE("a quantile lies linearly between its neighbours") {
    constexpr std::array sorted{1.0, 2.0, 4.0, 8.0};
    CHECK(quantile(sorted, 0.0) == 1.0);
    CHECK(quantile(sorted, 0.5) == 3.0);                     // position 1.5: 2 + 0.5 * (4 - 2)
    CHECK(quantile(sorted, 0.84) == doctest::Approx(6.08));  // position 2.52: 4 + 0.52 * (8 - 4)
    CHECK(quantile(sorted, 1.0) == 8.0);
  }

  TEST_CASE("the spread of a sum is that of independent parts") {
    const TimeStat sum =
        together({Seconds(10), Seconds(7), Seconds(16), 9}, {Seconds(20), Seconds(16), Seconds(28), 7});
    CHECK(sum == TimeStat{Seconds(30), Seconds(25), Seconds(40), 7});  // 3, 4 and 5; 6, 8 and 10
  }

  TEST_CASE("a quantile of nothing is refused") {
    CHECK_THROWS_WITH_AS(quantile({}, 0.5), "quantile: no values; sample at least once", Error);
  }

  TEST_CASE("five values give no interval of the median, six give their range") {
    // P(Binomial(5, 1/2) < 1) = 1/32 > 0.025; P(Binomial(6, 1/2) < 1) = 1/64 <= 0.025, < 2 is 7/64.
    CHECK(std::isinf(median_interval(one_to(5)).high));
    CHECK(std::isinf(median_interval({}).low));
    CHECK(median_interval(one_to(6)) == Interval{1, 6});
  }

  TEST_CASE("the interval leaves out the extremes as soon as 95 % allow it") {
    // n = 8: P(< 2) = 9/256 = 0.035 is too much; n = 9: 10/512 = 0.0195 is not, P(< 3) = 46/512 is.
    CHECK(median_interval(one_to(8)) == Interval{1, 8});
    CHECK(median_interval(one_to(9)) == Interval{2, 8});
    // n = 60: P(< 22) = 0.0137, P(< 23) = 0.0259: k = 22.
    CHECK(median_interval(one_to(60)) == Interval{22, 39});
    // n = 100 by the normal rule: (100 - 19.6) / 2 = 40.2.
    CHECK(median_interval(one_to(100)) == Interval{40, 61});
  }

  TEST_CASE("the relative half-width is half the interval over the median") {
    CHECK(relative_half_width(std::array{12.0, 10.0, 10.0, 10.0, 10.0, 10.0}) == doctest::Approx(0.1));
    CHECK(relative_half_width(std::array{0.0, 0.0, 0.0, 0.0, 0.0, 0.0}) == 0.0);
    CHECK(std::isinf(relative_half_width(std::array{1.0, 1.0, 1.0, 1.0, 1.0})));
  }

  TEST_CASE("outliers lie far above the median, measured by its median deviation") {
    // Median 10, deviations 0 0 1 1 1 1 90: median deviation 1, limit 10 + 5 * 1.4826 = 17.4.
    CHECK(count_outliers(std::array{9.0, 10.0, 11.0, 9.0, 10.0, 11.0, 100.0}) == 1);
    // Without any deviation 1 % of the median stands in: limit 10 + 5 * 0.1 = 10.5.
    CHECK(count_outliers(std::array{10.0, 10.0, 10.0, 10.0, 10.4, 10.6}) == 1);
    // Far below is no interruption.
    CHECK(count_outliers(std::array{10.0, 10.0, 10.0, 10.0, 1.0}) == 0);
    CHECK(count_outliers({}) == 0);
  }

  TEST_CASE("a summary holds median, 16th and 84th percentile and the count, in any order of the samples") {
    const TimeStat time = summarise(std::array{4.0, 1.0, 8.0, 2.0});
    CHECK(time.median.count() == 3.0);
    CHECK(time.low.count() == doctest::Approx(1.48));  // position 0.48: 1 + 0.48 * (2 - 1)
    CHECK(time.high.count() == doctest::Approx(6.08));
    CHECK(time.samples == 4);
    CHECK(summarise({}) == TimeStat{});
  }

  TEST_CASE("the spread is half of high - low over the median") {
    CHECK(relative_spread({Seconds(10), Seconds(9), Seconds(13), 5}) == doctest::Approx(0.2));
    CHECK(relative_spread({}) == 0.0);
  }
}

}  // namespace pp::profile
