#include "librun/links/link_fit.h"

#include <vector>

#include "tests/librun/links/link_samples.h"
#include "tests/support/doctest.h"

namespace link_fit_test {

using namespace pp;
using namespace pp::run;
using pp::run::test::sample;

namespace {

/// 1 KiB to 512 KiB at 10 us + x/(1 GB/s).
std::vector<LinkSample> straight() {
  std::vector<LinkSample> samples;
  for (std::int64_t size = 1 << 10; size <= 1 << 19; size *= 2)
    samples.push_back(sample(size, 10 + 1e-3 * static_cast<double>(size)));
  return samples;
}

}  // namespace

TEST_SUITE("librun/links/link_fit") {
  TEST_CASE("the fit finds latency and bandwidth of exact samples") {
    // 10 us + x / (1 GB/s): 1 kB takes 11 us, 9 kB 19 us, 990 kB 1000 us.
    const std::vector<LinkSample> samples{sample(1000, 11), sample(9000, 19), sample(990000, 1000)};
    const LinkFit fit = fit_link(samples);
    CHECK(fit.link.latency.count() == doctest::Approx(10e-6));
    CHECK(fit.link.bandwidth.value == doctest::Approx(1e9));
    CHECK(fit.residual < 1e-9);
    CHECK_FALSE(fit_finding("level node", fit, samples).has_value());
  }

  TEST_CASE("interrupted sizes do not bend the line, but are told") {
    // Two of ten sizes took five times as long: the line is right at the others and 1 - 1/5 too low at these.
    std::vector<LinkSample> samples = straight();
    for (const std::size_t i : {2U, 8U}) samples[i].time.median *= 5;
    const LinkFit fit = fit_link(samples);
    CHECK(fit.link.latency.count() == doctest::Approx(10e-6).epsilon(0.02));
    CHECK(fit.link.bandwidth.value == doctest::Approx(1e9).epsilon(0.02));
    CHECK(fit.residual == doctest::Approx(0.8).epsilon(0.02));
  }

  TEST_CASE("small messages weigh as much as large ones") {
    // Times 10 % too long and too short in turn, at all sizes alike: neither end may win by its size.
    std::vector<LinkSample> samples = straight();
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i].time.median *= i % 2 == 0 ? 1.1 : 0.9;
    const LinkFit fit = fit_link(samples);
    CHECK(fit.link.latency.count() == doctest::Approx(10e-6).epsilon(0.06));
    CHECK(fit.link.bandwidth.value == doctest::Approx(1e9).epsilon(0.06));
  }

  TEST_CASE("a line that would begin below zero goes through zero") {
    // Ten times the size takes a hundred times as long. Through zero, slope s us/kB: errors s - 1 and s/10 - 1;
    // Huber's line follows neither exactly, but its slope lies between theirs, 1 and 10.
    const std::vector<LinkSample> samples{sample(1000, 1), sample(10000, 100)};
    const LinkFit fit = fit_link(samples);
    CHECK(fit.link.latency.count() == 0);
    CHECK(fit.link.bandwidth.value <= 1e9 * (1 + 1e-9));
    CHECK(fit.link.bandwidth.value >= 1e8 * (1 - 1e-9));
  }

  TEST_CASE("times that do not grow have their mean as latency and a bandwidth that hardly matters") {
    const std::vector<LinkSample> samples{sample(1000, 12), sample(2000, 12), sample(4000, 12)};
    const LinkFit fit = fit_link(samples);
    CHECK(fit.link.latency.count() == doctest::Approx(12e-6));
    // 4000 bytes in 1 % of 12 us.
    CHECK(fit.link.bandwidth.value == doctest::Approx(4000 / 0.12e-6));
    // By reference: 8 MiB in 1 % of 5 us would be 168 TB/s, which no planner believes.
    const std::vector<LinkSample> handed_over{sample(1024, 5), sample(std::int64_t{8} << 20, 5)};
    CHECK(fit_link(handed_over).link.bandwidth == kLargestBandwidth);
    const std::vector<LinkSample> falling{sample(1000, 20), sample(4000, 10)};
    CHECK(fit_link(falling).link.bandwidth.value > 0);
  }

  TEST_CASE("sums that leave the caches go on along a steeper line") {
    // Up to 8 kB 1 us + 1 ns/B, past them 4 ns/B: 1, 2, 4, 8 kB take 2, 3, 5, 9 us; 16, 32, 64, 128 kB take
    // 9 + 4 * (8, 24, 56, 120) us.
    const std::vector<LinkSample> samples{sample(1000, 2),    sample(2000, 3),    sample(4000, 5),
                                          sample(8000, 9),    sample(16000, 41),  sample(32000, 105),
                                          sample(64000, 233), sample(128000, 489)};
    const LinkFit fit = fit_sums(samples);
    CHECK(fit.link.latency.count() == doctest::Approx(1e-6));
    CHECK(fit.link.bandwidth.value == doctest::Approx(1e9));
    CHECK(fit.link.beyond.value == doctest::Approx(2.5e8));
    CHECK(fit.link.cached.value == doctest::Approx(8000));
    CHECK(fit.residual < 1e-6);
  }

  TEST_CASE(
      "sums of two cores on a busy machine: small sizes are noisy, the caches' end is seen all the same") {
    // Two cores of an AMD EPYC with 32 MiB of shared cache; us of 1 KiB, 2 KiB, ... 64 MiB. From 16 MiB on a
    // byte costs more: 4.85 ms for 48 MiB are 10 GB/s, where 0.34 ms for the 7 MiB up to 8 MiB are 22.
    const std::vector<double> times{7.3,  4.6,  7.9,   8.0,   5.0,   8.7,    9.5,    10.6,  15.5,
                                    29.3, 55.8, 104.5, 204.5, 396.5, 1045.8, 2120.0, 5894.4};
    std::vector<LinkSample> samples;
    for (std::size_t i = 0; i < times.size(); ++i) samples.push_back(sample(std::int64_t{1024} << i, times[i]));
    const LinkFit one = fit_link(samples), two = fit_sums(samples);
    const double largest = 64 << 20;
    CHECK(transfer_time(largest, 1, one.link) < 0.6 * times.back() * 1e-6);
    CHECK(transfer_time(largest, 1, two.link) > 0.8 * times.back() * 1e-6);
    CHECK(two.link.beyond.value < 0.7 * two.link.bandwidth.value);
    CHECK(two.link.cached > Bytes(4 << 20));
    CHECK(two.link.cached < Bytes(16 << 20));
  }

  TEST_CASE("sums on one line stay on it, also where the machine was interrupted") {
    std::vector<LinkSample> samples = straight();
    CHECK(fit_sums(samples).link == fit_link(samples).link);
    for (const std::size_t i : {2U, 9U}) samples[i].time.median *= 5;  // the last size, too
    CHECK(fit_sums(samples).link.beyond.value == 0);
    // A line that bends the other way is one line.
    for (std::size_t i = 5; i < samples.size(); ++i) samples[i].time.median = samples[4].time.median;
    CHECK(fit_sums(samples).link.beyond.value == 0);
  }

  TEST_CASE("a fit that misses by more than a quarter names the size and the remedy") {
    std::vector<LinkSample> samples = straight();
    samples[3].time.median *= 2;  // 8 KiB
    const LinkFit fit = fit_link(samples);
    CHECK(fit_finding("level node", fit, samples) ==
          "level node: latency and bandwidth miss the time of 8 KiB by 50 %: plans with messages of that size "
          "will "
          "be as rough; measure again on an idle machine, or set the level's values by hand");
  }
}

}  // namespace link_fit_test
