#include "libplan/simulate/expected_step.h"

#include <array>
#include <cmath>
#include <numbers>
#include <random>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::costs;
using test::equal_stages;

constexpr double kHalfNormal = 0.3989422804014327;  // E[max(z, 0)] = 1/sqrt(2 pi)

Spread spread(double below, double above) { return {Seconds(below), Seconds(above), {}}; }

double excess(const SimulationInput& input) { return expected_excess(input).value().count(); }

/// F of 1 and B of 2 s that vary by these on every stage.
SimulationInput varying(const ScheduleRequest& request, const Spread& forward, const Spread& backward,
                        int stream_length = 0) {
  SimulationInput input = equal_stages(program_set(request, stream_length));
  for (StageCosts& stage : input.stages) stage.spread = StageSpread{forward, backward, {}, {}, {}, {}};
  return input;
}

/// Mean of the third minus the mean of the second of three chained steps of 1f1b with two stages and four
/// micro-batches, by its recursion and another generator.
double mean_of_two_stages(double sigma_forward, double sigma_backward, int draws) {
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  const auto forward = [&] { return 1 + sigma_forward * normal(generator); };
  const auto backward = [&] { return 2 + sigma_backward * normal(generator); };
  double sum = 0;
  for (int i = 0; i < draws; ++i) {
    double first = 0, second = 0, before = 0, end = 0;  // when the workers are free; ends of the last two steps
    for (int step = 0; step < 3; ++step) {
      // Worker 0: F0 F1 B0 F2 B1 F3 B2 B3; worker 1: F0 B0 F1 B1 F2 B2 F3 B3.
      std::array<double, 4> forwarded{}, returned{};  // ends of F on worker 0 and of B on worker 1
      const auto run_second = [&](std::size_t m) {
        second = returned[m] = std::max(second, forwarded[m]) + forward() + backward();
      };
      for (std::size_t m = 0; m < 4; ++m) {
        first = forwarded[m] = first + forward();
        run_second(m);
        if (m > 0) first = std::max(first, returned[m - 1]) + backward();
      }
      first = std::max(first, returned[3]) + backward();
      before = end;
      end = first;
    }
    sum += end - before;
  }
  return sum / draws;
}

TEST_SUITE("libplan/simulate/expected_step") {
  TEST_CASE("of one worker alone it is what the means of its operations are beyond their medians") {
    // A normal of 0.1 below and 0.4 above has a mean of 0.3/sqrt(2 pi) beyond its median: three forwards; equal
    // halves add nothing: three backwards; one update of 0 and 0.2.
    SimulationInput input = varying({"gpipe", {1}, 3, WindowRule::win, {}}, spread(0.1, 0.4), spread(0.3, 0.3));
    input.stages[0].update = Seconds(1);
    input.stages[0].spread->update = spread(0, 0.2);
    CHECK(excess(input) == doctest::Approx((3 * 0.3 + 0.2) * kHalfNormal).epsilon(1e-9));
    // What the mean of a sum has beyond its medians besides: three times.
    input.stages[0].spread->backward.shift = Seconds(-0.05);
    CHECK(excess(input) == doctest::Approx((3 * 0.3 + 0.2) * kHalfNormal - 3 * 0.05).epsilon(1e-9));
    input.stages[0].spread->backward.shift = Seconds(0);
    // A micro-batch of twice the size varies twice as much.
    input.micro_batch_scale = {1, 2, 1};
    CHECK(excess(input) == doctest::Approx((4 * 0.3 + 0.2) * kHalfNormal).epsilon(1e-9));
  }

  TEST_CASE("times that vary by more than themselves are never below 0, and neither is their mean") {
    // F of 1 s, below only: E[max(0, 1 + 4 z); z < 0] + 1/2 = (0.5 - Q(1/4)) - 4 (phi(0) - phi(1/4)) + 1/2
    //   = 0.0987063 - 4 (0.3989423 - 0.3866681) + 0.5 = 0.5496095, so three times -0.4503905 beyond the
    //   medians.
    SimulationInput input = varying({"gpipe", {1}, 3, WindowRule::win, {}}, spread(4, 0), spread(0, 0));
    CHECK(excess(input) == doctest::Approx(3 * -0.4503905).epsilon(1e-6));
    // Shifted to -1: E[max(0, -1 + 2 z)] = 2 phi(1/2) - Q(1/2) = 0.7041306 - 0.3085375.
    input.stages[0].spread->forward = {Seconds(0), Seconds(2), Seconds(-2)};
    CHECK(excess(input) == doctest::Approx(3 * (0.3955931 - 1)).epsilon(1e-6));
  }

  TEST_CASE("the larger of two independent normals is on average sigma / sqrt(pi) above them") {
    // Two replicas of one micro-batch each, whose all-reduce takes no time but waits: max(F + B, F + B), with
    // sigma = sqrt(0.03^2 + 0.04^2) = 0.05.
    const SimulationInput input =
        varying({"gpipe", {2}, 2, WindowRule::win, {}}, spread(0.03, 0.03), spread(0.04, 0.04));
    const double exact = 0.05 / std::sqrt(std::numbers::pi);
    // max(X, Y) - X has a deviation of 0.59 of that of X - Y, 0.0707: 0.0009 as the mean of 2048.
    CHECK(std::abs(excess(input) - exact) < 3 * 0.0009);
  }

  TEST_CASE("below and above the median each side varies by its own") {
    // Never below: max(z1, z2, 0) of two normals is phi(0) + 1/(2 sqrt(pi)) = 0.681 on average.
    const SimulationInput input = varying({"gpipe", {2}, 2, WindowRule::win, {}}, spread(0, 0.3), spread(0, 0));
    const double exact = 0.3 * (kHalfNormal + 1 / (2 * std::sqrt(std::numbers::pi)));
    CHECK(std::abs(excess(input) - exact) < 0.01);  // three deviations of a mean of 2048
  }

  TEST_CASE("a pipeline of two stages is what another Monte Carlo of its recursion finds") {
    const SimulationInput input =
        varying({"1f1b", {1, 1}, 4, WindowRule::win, {}}, spread(0.1, 0.1), spread(0.2, 0.2));
    const double medians = mean_of_two_stages(0, 0, 1);
    REQUIRE(chained_period(input).count() == doctest::Approx(medians));
    const double reference = mean_of_two_stages(0.1, 0.2, 200'000) - medians;  // +- 0.001
    CHECK(reference > 0.1);
    CHECK(std::abs(excess(input) - reference) < 0.04);  // three deviations of a mean of 2048
    // Every operation 0.01 longer is a step 0.01 longer for each of those on the way, eight or more.
    SimulationInput shifted = input;
    for (StageCosts& stage : shifted.stages)
      stage.spread->forward.shift = stage.spread->backward.shift = Seconds(0.01);
    CHECK(excess(shifted) - excess(input) > 0.0799);
  }

  TEST_CASE("streams are measured per micro-batch, in their middle third") {
    const SimulationInput input =
        varying({"pipedream", {1}, 1, WindowRule::win, {}}, spread(0, 0.3), spread(0, 0), 30);
    CHECK(excess(input) == doctest::Approx(0.3 * kHalfNormal).epsilon(1e-9));
  }

  TEST_CASE("times that do not vary add nothing at all, and unknown ones say nothing") {
    const SimulationInput still = varying({"1f1b", {1, 1, 1}, 6, WindowRule::win, {}}, {}, {});
    CHECK(excess(still) == 0);
    CHECK_FALSE(expected_excess(equal_stages(program_set({"gpipe", {1}, 2, WindowRule::win, {}}))).has_value());
  }

  TEST_CASE("the same input gives the same bits, and more than 100,000 operations nothing") {
    const auto input = [](int micro_batches) {
      return varying({"1f1b", {1, 1}, micro_batches, WindowRule::win, {}}, spread(0.1, 0.2), spread(0.2, 0.2));
    };
    CHECK(excess(input(8)) == excess(input(8)));
    CHECK(expected_excess(input(8'000)).has_value());  // 3 steps of 2 x (2 x 8000 + 1)
    CHECK_FALSE(expected_excess(input(9'000)).has_value());
  }
}

}  // namespace
}  // namespace pp::plan
