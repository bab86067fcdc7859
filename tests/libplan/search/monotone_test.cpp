// A better machine does not give a slower plan. More devices by construction: smaller machines are cases
// too. More memory and faster links usually, here on all of these small models, since what fits less memory
// competes (find_candidates.h) and all partitions close to the optimum are simulated (near_optima.h). Up to 20
// devices, factors of all sizes; the tolerance is that of sums in another order.
#include <algorithm>

#include "libplan/answer/make_plan.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/monotone");

namespace pp::plan::monotone_test {
namespace {

using test::make_cluster;
using test::Random;

constexpr double kRounding = 1e-9;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Layers of 0.5-10 + 1-20 ms; up to 3 MB of weights and 1 MB of output, times `scale`.
Profile random_profile(Random& random, double scale) {
  test::ProfileSpec spec;
  const int layers = random.integer(4, 8);
  const auto bytes = [&](int most, double unit) {
    return static_cast<std::int64_t>(scale * unit * random.integer(0, most));
  };
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({random.integer(1, 20) * 0.5, random.integer(1, 20) * 1.0, bytes(3, 1e6),
                           bytes(4, 250e3), random.integer(0, 500'000), 0, random.integer(0, 100'000)});
  }
  return test::make_profile(spec);
}

PlanRequest request_of(const std::string& schedule) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(schedule == "pipedream" ? 1 : 16);
  request.schedule = schedule;
  return request;
}

/// Seconds per step; infinity: nothing fits.
double step_of(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  const auto result = make_plan(profile, cluster, request);
  const Plan* plan = std::get_if<Plan>(&result);
  return plan != nullptr ? plan->predicted.step.count() : kInfinity;
}

void check_falling(const std::vector<double>& steps) {
  CAPTURE(steps.size());
  for (std::size_t i = 1; i < steps.size(); ++i) {
    CAPTURE(i);
    CHECK(steps[i] <= steps[i - 1] * (1 + kRounding));
  }
}

/// 1, 1.1, 1.21, .. and 1, 3, 9, .., 1000 and so on: what grows from `begin` by random factors up to `end`.
std::vector<double> growing(Random& random, double begin, double end) {
  const std::vector<double> factors{1.1, 1.5, 2, 3, 10, 100, 1000};
  std::vector<double> values{begin};
  while (values.back() < end) values.push_back(values.back() * factors[at(random.integer(0, 6))]);
  return values;
}

}  // namespace

TEST_CASE("up to 20 devices, each one more") {
  Random random(1);
  for (const auto& [schedule, scale] : std::vector<std::pair<std::string, double>>{
           {"1f1b", 0.1}, {"1f1b", 4}, {"gpipe", 1}, {"pipedream", 1}}) {
    const PlanRequest request = request_of(schedule);
    CAPTURE(request.schedule);
    const Profile profile = random_profile(random, scale);
    std::vector<double> steps;
    for (int devices = 1; devices <= 20; ++devices)
      steps.push_back(step_of(profile, make_cluster(devices), request));
    check_falling(steps);
  }
}

TEST_CASE("links faster by 10 % or a thousand times") {
  Random random(2);
  for (int round = 0; round < 24; ++round) {
    CAPTURE(round);
    const std::string schedule = std::vector{"1f1b", "gpipe", "pipedream"}[at(round) % 3];
    const Profile profile = random_profile(random, 1);
    const int devices = random.integer(2, 8);
    std::vector<double> steps;
    for (const double bandwidth : growing(random, 1e7, 1e10))
      steps.push_back(step_of(profile, make_cluster(devices, 0, bandwidth), request_of(schedule)));
    check_falling(steps);
  }
}

TEST_CASE("more memory, from nothing fits to room for everything") {
  Random random(3);
  for (int round = 0; round < 12; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, 1);
    const int devices = random.integer(2, 8);
    PlanRequest request = request_of(std::vector{"1f1b", "gpipe", "pipedream"}[at(round) % 3]);
    std::vector<double> steps;
    for (double limit = 5e6; limit < 2e8; limit *= 1 + 0.5 * random.unit()) {
      request.memory_limit = Bytes(static_cast<std::int64_t>(limit));
      const double step = step_of(profile, make_cluster(devices), request);
      if (step < kInfinity || !steps.empty()) steps.push_back(step);
    }
    CHECK(steps.size() > 5);
    check_falling(steps);
  }
}

}  // namespace pp::plan::monotone_test

TEST_SUITE_END();
