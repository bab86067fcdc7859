// Schedules that place their stages, planned as whole pipelines side by side.
#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/pipelines");

namespace pp::plan::pipelines_test {
namespace {

/// Equal layers of F 1 and B 2 ms, halves measured, hardly any weights.
Profile equal_layers(int layers) {
  test::ProfileSpec spec;
  spec.layers.assign(at(layers), {.forward_ms = 1, .backward_ms = 2, .parameters = 1000});
  Profile profile = test::make_profile(spec);
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points)
      point.input_gradient = point.weight_gradient =
          TimeStat{Seconds(0.001), Seconds(0.001), Seconds(0.001), 1};
  }
  return profile;
}

Plan planned(const Profile& profile, int devices, PlanRequest request) {
  return std::get<Plan>(make_plan(profile, test::make_cluster(devices, 0, 1e12), request));
}

}  // namespace

TEST_CASE("more devices than a pipeline has layers for are used by several") {
  // Four layers, 16 devices, eight micro-batches: no pipeline has more than four stages, so four of them run
  // two micro-batches each: (2 + 3) * 3 ms with 1F1B's bubble, the bound of the whole work being 4*8*3/16 = 6.
  const Profile profile = equal_layers(4);
  for (const char* schedule : {"zb-h1", "zb-h2", "auto-zb", "chimera"}) {
    CAPTURE(schedule);
    PlanRequest request;
    request.mini_batch = request.micro_batches.emplace(8);
    request.schedule = schedule;
    const Plan plan = planned(profile, 16, request);
    CHECK(plan.workers.size() >= 8);
    CHECK(plan.predicted.step < Seconds(0.0151));
    check_plan(plan);
    CHECK(predict(plan, profile, cluster_of(plan), request).step == plan.predicted.step);
  }
  for (const char* schedule : {"interleaved", "looped-bfs", "zb-v", "dualpipe-v"}) {
    CAPTURE(schedule);
    PlanRequest request;
    request.mini_batch = request.micro_batches.emplace(8);
    request.schedule = schedule;
    request.stages = 2;                              // workers of a pipeline
    const Plan plan = planned(profile, 4, request);  // two stages a worker: two pipelines of two workers
    CHECK(plan.workers.size() == 4);
    CHECK(plan.stages.size() == 4);
    CHECK(plan.stages[0].workers.size() == 2);
    CHECK(plan.schedule.chunks_per_worker == 2);
    check_plan(plan);
  }
}

TEST_CASE("as many pipelines as --replicas says, of as many workers") {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(12);
  request.schedule = "zb-h1";
  request.replicas = {3, 3};
  const Plan plan = planned(equal_layers(6), 8, request);
  CHECK(plan.workers.size() == 6);
  REQUIRE(plan.stages.size() == 2);
  CHECK(plan.stages[1].workers == std::vector{WorkerId{3}, WorkerId{4}, WorkerId{5}});
  // Of a schedule with two stages per worker the replicas are those of its workers, too.
  PlanRequest looped;
  looped.mini_batch = looped.micro_batches.emplace(8);
  looped.schedule = "interleaved";
  looped.chunks_per_worker = 2;
  looped.replicas = {2, 2};
  const Plan two = planned(equal_layers(6), 8, looped);
  CHECK(two.workers.size() == 4);
  CHECK(two.stages.size() == 4);
  CHECK(two.stages[3].workers == std::vector{WorkerId{2}, WorkerId{3}});
  // --cuts lists all stages, --stages and --replicas count the workers that have two each.
  looped.stages = 2, looped.cuts = {1, 2, 4};
  const Plan cut = planned(equal_layers(6), 8, looped);
  CHECK(cut.workers.size() == 4);
  REQUIRE(cut.stages.size() == 4);
  CHECK(cut.stages[2].layers.size() == 2);
  looped.cuts = {1, 2};
  CHECK_THROWS_WITH_AS(planned(equal_layers(6), 8, looped),
                       "stages asks for 4 stages, 2 per worker, cuts for 3; make them agree", Error);
  request.replicas = {2, 1};
  try {
    planned(equal_layers(6), 8, request);
    FAIL("unequal replicas were planned");
  } catch (const Error& error) {
    CHECK(
        std::string(error.what()) ==
        "schedule zb-h1 runs whole pipelines side by side; give --replicas one number for all of its workers");
  }
}

}  // namespace pp::plan::pipelines_test

TEST_SUITE_END();
