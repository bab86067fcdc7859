// Micro-batches of unequal sizes, and what runs again, by hand.
#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libplan/report/what_if.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/unequal");

namespace pp::plan::unequal_test {
namespace {

constexpr std::int64_t kMb = 1'000'000;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Two layers of 1 + 1 ms and 5 MB for each sample, in micro-batches of one or two.
Profile per_sample() {
  return test::make_profile({{{1, 1, 0, 0, 5 * kMb}, {1, 1, 0, 0, 5 * kMb}}, {}, {1, 2}});
}

PlanRequest three_in_two(std::int64_t limit) {
  PlanRequest request;
  request.mini_batch = 3;
  request.micro_batches = 2;
  request.schedule = "gpipe";
  request.memory_limit = Bytes(limit);
  return request;
}

}  // namespace

TEST_CASE("three samples in two micro-batches hold three samples, not four, and take as long") {
  // Both are in flight: 2 * 10 + 1 * 10 = 30 MB. Of two samples one takes 2 * (2 + 2) = 8 ms, the other 4.
  const Cluster cluster = test::make_cluster(1);
  const auto result = make_plan(per_sample(), cluster, three_in_two(30 * kMb));
  REQUIRE(std::holds_alternative<Plan>(result));
  const Plan& plan = std::get<Plan>(result);
  CHECK(plan.predicted.workers[0].memory.peak == Bytes(30 * kMb));
  CHECK(plan.predicted.step.count() == exactly(0.012));
  CHECK(test::searched(per_sample(), cluster, three_in_two(30 * kMb)).bound == exactly(0.012));
  CHECK(parse_plan(dump_json(to_json(plan))) == plan);
  CHECK(predict(plan, per_sample(), cluster) == plan.predicted);
  CHECK(simulate(simulation_input(plan)).makespan == plan.predicted.makespan);

  const auto none = make_plan(per_sample(), cluster, three_in_two(30 * kMb - 1));
  REQUIRE(std::holds_alternative<Infeasible>(none));
  CHECK(std::get<Infeasible>(none).smallest_limit == Bytes(30 * kMb));
}

TEST_CASE("bytes follow their own curve: a micro-batch of half the size that takes 4 of 5 ms") {
  // 1 + 1 ms for one sample, 2 + 0.5 for two, but half the bytes: 10 MB and 5, 15 MB in all.
  Profile profile = test::make_profile({{{1, 1, 0, 0, 5 * kMb}}, {}, {1, 2}});
  profile.layers[0].points[1].backward.median = Seconds(0.5e-3);
  const auto result = make_plan(profile, test::make_cluster(1), three_in_two(15 * kMb));
  REQUIRE(std::holds_alternative<Plan>(result));
  const Plan& plan = std::get<Plan>(result);
  CHECK(plan.predicted.workers[0].memory.peak == Bytes(15 * kMb));
  CHECK(plan.predicted.step.count() == exactly(0.0045));
}

TEST_CASE("what runs again of unequal micro-batches") {
  // a again keeps 3 * 5 MB of b and has 2 * 5 MB of a at a time: 25 MB; 2 and 1 ms more.
  PlanRequest request = three_in_two(25 * kMb);
  request.recompute = RecomputeMode::automatic;
  const SearchOutcome found = test::searched(per_sample(), test::make_cluster(1), request);
  CHECK(test::step_of(found) == exactly(0.015));
  CHECK(found.bound <= 0.015 * (1 + 1e-9));
}

TEST_CASE("the loss's forward never runs again, so no bound counts it") {
  // Four micro-batches of 16 + 17 ms: 132 ms with 4 * 20 = 80 MB. Within 54 MB layer b runs again, 1 ms for
  // each: 4 * (10 + 1) + 10 = 54 MB and 136 ms.
  Profile profile = test::make_profile({{{5, 5, 0, kMb, 10 * kMb}, {1, 2, 0, 0, 10 * kMb, kMb}}, {}, {1}});
  profile.loss = profile.layers[1];
  profile.loss->name = "loss";
  profile.loss->points[0].forward.median = profile.loss->points[0].backward.median = Seconds(10e-3);
  profile.loss->points[0].saved = profile.loss->points[0].saved_input = Bytes(0);
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.schedule = "gpipe";
  request.memory_limit = Bytes(54 * kMb);
  request.recompute = RecomputeMode::automatic;
  const SearchOutcome found = test::searched(profile, test::make_cluster(1), request);
  CHECK(test::step_of(found) == exactly(0.136));
  CHECK(found.bound <= 0.136 * (1 + 1e-9));
}

TEST_CASE("a plan that memory slows down says what recompute would give, one that it does not says nothing") {
  // One device, two layers of 5 MB a sample. Micro-batches of 1, 2 and 4 samples take 8, 9 and 10 ms, so one of
  // four is best: 10 ms with 40 MB. Within 20 MB two of two fit, 18 ms; or all four with both layers again, 3
  // ms more and 20 MB at a time.
  Profile profile = test::make_profile({{{1, 3, 0, 0, 5 * kMb}, {1, 3, 0, 0, 5 * kMb}}, {}, {1, 2, 4}});
  for (LayerProfile& layer : profile.layers) {
    for (std::size_t p = 0; p < 3; ++p) {
      layer.points[p].forward.median = Seconds(1e-3 + 0.25e-3 * static_cast<double>(p));
      layer.points[p].backward.median = Seconds(3e-3 + 0.25e-3 * static_cast<double>(p));
    }
  }
  PlanRequest request;
  request.mini_batch = 4;
  request.schedule = "1f1b";
  const Cluster cluster = test::make_cluster(1);
  request.memory_limit = Bytes(20 * kMb);
  const Plan slow = std::get<Plan>(make_plan(profile, cluster, request));
  CHECK(slow.predicted.step.count() == exactly(0.018));
  const std::optional<Seconds> hint = step_with_recompute(slow, profile, cluster, request);
  REQUIRE(hint);
  CHECK(hint->count() == exactly(0.013));
  request.memory_limit = Bytes(40 * kMb);
  const Plan fast = std::get<Plan>(make_plan(profile, cluster, request));
  CHECK(fast.predicted.step.count() == exactly(0.010));
  CHECK_FALSE(step_with_recompute(fast, profile, cluster, request));
}

}  // namespace pp::plan::unequal_test

TEST_SUITE_END();
