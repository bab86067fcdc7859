#include "libplan/price/expected_step.h"
#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/expected_step");

namespace pp::plan::expected_step_test {
namespace {

using test::make_cluster;
using test::make_profile;

constexpr double kHalfNormal = 0.3989422804014327;  // 1/sqrt(2 pi)

/// But for what a normal has more than four deviations below: no time is below 0, which adds less than 1e-6 of
/// it.
doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-6); }

TimeStat time(double median, double low, double high) {
  return {Seconds(1e-3 * median), Seconds(1e-3 * low), Seconds(1e-3 * high), 10};
}

/// Two layers of 1 ms forward and 2 ms backward; forwards vary by 0.3 and 0.4 ms below, twice that above.
Profile noisy() {
  Profile profile = make_profile({std::vector<test::LayerRow>(2, {1, 2, 0, 0, 0, 0, 0}), {}, {1}});
  profile.layers[0].points[0].forward = time(1, 0.7, 1.6);
  profile.layers[1].points[0].forward = time(1, 0.6, 1.8);
  return profile;
}

PlanRequest request_of(int stages) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.schedule = "1f1b";
  request.stages = stages;
  request.max_replicas = 1;
  return request;
}

Plan completed(const Profile& profile, int stages) {
  const PlanRequest request = request_of(stages);
  Plan plan = std::get<Plan>(make_plan(profile, make_cluster(stages), request));
  add_expected_step(plan, profile, request);
  return plan;
}

}  // namespace

TEST_CASE("layers of a stage vary independently, and so does what an operation takes beside them") {
  Profile profile = noisy();
  const auto forward = [&] { return completed(profile, 1).predicted.stages[0].spread->forward; };
  CHECK(forward().below.count() == exactly(0.5e-3));                 // sqrt(0.3^2 + 0.4^2)
  CHECK(forward().above.count() == exactly(1e-3));                   // sqrt(0.6^2 + 0.8^2)
  CHECK(forward().mean().count() == exactly(0.7e-3 * kHalfNormal));  // their means add up: 0.3 and 0.4
  CHECK(forward().shift.count() == exactly(0.2e-3 * kHalfNormal));   // of which 0.5 are in the halves
  profile.operation_overhead = OperationOverhead{time(0.1, 0.1, 2.5), time(0.1, 0.1, 0.1)};
  CHECK(forward().above.count() == exactly(2.6e-3));  // sqrt(1 + 2.4^2)
}

TEST_CASE("one worker's expected step is the sum of its operations' means") {
  // Four forwards of 2 ms, whose layers' halves differ by 0.3 and 0.4 ms, four backwards of 4 ms.
  const Plan plan = completed(noisy(), 1);
  CHECK(plan.predicted.step.count() == exactly(24e-3));
  CHECK(plan.predicted.expected_step->count() == exactly((24 + 4 * 0.7 * kHalfNormal) * 1e-3));
  check_plan(plan);
  CHECK(plan_from_json(to_json(plan)) == plan);
  CHECK(to_json(plan)["predicted"]["stages"][0]["spread"]["forward"]["above_s"] ==
        plan.predicted.stages[0].spread->forward.above.count());
}

TEST_CASE("a device half as fast varies twice as much") {
  const Profile profile = noisy();
  Cluster cluster = make_cluster(1);
  cluster.devices[0].speed = 0.5;
  Plan plan = std::get<Plan>(make_plan(profile, cluster, request_of(1)));
  add_expected_step(plan, profile, request_of(1));
  CHECK(plan.predicted.expected_step->count() == exactly(2 * (24 + 4 * 0.7 * kHalfNormal) * 1e-3));
}

TEST_CASE("stages that wait for each other take longer than their means") {
  Profile profile = noisy();
  for (LayerProfile& layer : profile.layers) layer.points[0].forward = time(1, 0.5, 1.5);
  const Plan one = completed(profile, 1), two = completed(profile, 2);
  // Symmetric, but that no time is below 0. Of a normal variable with the mean 1 ms and sigma = 0.5 / 1.2816 =
  // 0.39 ms that adds sigma (phi(z) - z Q(z)) with z = 2.563: 0.39 (0.01494 - 0.01330) = 0.64 us to each
  // forward.
  CHECK(one.predicted.expected_step->count() ==
        doctest::Approx(one.predicted.step.count()).epsilon(4 * 0.64e-6 / one.predicted.step.count()));
  CHECK(two.predicted.expected_step->count() > 1.01 * two.predicted.step.count());
  CHECK(simulation_input(two).stages[1].spread.has_value());  // from the plan alone
}

TEST_CASE("without variation both are equal, without samples there is no key") {
  Profile profile = noisy();
  for (LayerProfile& layer : profile.layers) layer.points[0].forward = time(1, 1, 1);
  const Plan still = completed(profile, 2);
  CHECK(still.predicted.expected_step == still.predicted.step);
  for (LayerProfile& layer : profile.layers) layer.points[0].forward.samples = 0;
  const Plan unknown = completed(profile, 2);
  CHECK_FALSE(unknown.predicted.expected_step.has_value());
  CHECK_FALSE(to_json(unknown)["predicted"].contains("expected_step_s"));
  CHECK_FALSE(to_json(unknown)["predicted"]["stages"][0].contains("spread"));
}

TEST_CASE("a stream's expected step is of an update") {
  Profile profile = noisy();
  PlanRequest request = request_of(1);
  request.schedule = "pipedream";
  request.mini_batch = request.micro_batches.emplace(1);
  Plan plan = std::get<Plan>(make_plan(profile, make_cluster(1), request));
  add_expected_step(plan, profile, request);
  CHECK(plan.predicted.expected_step->count() == exactly((6 + 0.7 * kHalfNormal) * 1e-3));
}

}  // namespace pp::plan::expected_step_test
