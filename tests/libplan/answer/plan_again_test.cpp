#include "libplan/answer/plan_again.h"

#include <vector>

#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libplan/request/machine.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

namespace pp::plan::plan_again_test {
namespace {

/// A chain of equal layers of 1 ms forward and 2 ms backward, with 100 B of weights and 10 B kept a sample.
Profile even_chain(int layers, std::vector<std::int64_t> sizes = {1, 2, 4}) {
  return test::make_profile(
      {std::vector<test::LayerRow>(at(layers), {1, 2, 100, 1, 10, 0, 0}), {}, std::move(sizes)});
}

/// Two nodes of two devices.
Cluster two_nodes() {
  return nested_cluster(std::vector<LevelSpec>{{2, BytesPerSecond(1e10)}, {2, BytesPerSecond(1e9)}},
                        DeviceKind::cpu, Seconds(1e-6), Bytes(0));
}

template <class Found>
Plan taken(Found found) {
  if (const auto* none = std::get_if<Infeasible>(&found)) FAIL(none->reason);
  return std::get<Plan>(std::move(found));
}

PlanRequest pipeline() {
  PlanRequest request;
  request.mini_batch = 8;
  request.schedule = "1f1b,gpipe";
  request.micro_batches = 4;
  request.replicas = {1, 1, 1, 1};
  return request;
}

PlanRequest pipeline_of(int stages) {
  PlanRequest request = pipeline();
  request.replicas.assign(static_cast<std::size_t>(stages), 1);
  return request;
}

TEST_SUITE("libplan/answer/plan_again") {
  TEST_CASE("devices are left out with the levels that join the others, and numbered anew") {
    const std::vector<int> second_node{2, 3};
    const Cluster left = some_devices(two_nodes(), second_node);
    REQUIRE(left.devices.size() == 2);
    CHECK(left.devices[0].node == "b");
    CHECK(number(left.devices[1].id) == 1);
    REQUIRE(left.levels.size() == 1);  // the inner one joins both
    CHECK(left.levels[0].bandwidth.value == 1e10);
    CHECK(first_devices(two_nodes(), 2).levels == left.levels);
  }

  TEST_CASE("what calibrated the first plan counts for the next one, at the speeds that devices have") {
    const Profile profile = even_chain(6);
    Plan before = taken(make_plan(profile, first_devices(two_nodes(), 2), pipeline_of(2)));
    REQUIRE(stages_text(before) == "3|3");
    // The first two layers take three times as long: 9 + 9 | 3 + 3 + 3 + 3 ms a micro-batch in place of 21
    // and 9.
    before.calibration = Calibration{.reports = {"report"}};
    for (const char* const layer : {"a", "b"}) before.calibration->layers.push_back({layer, 3, 3, 3, 3});
    const Plan again = taken(plan_again(before, profile, cluster_of(before), request_of(before)));
    CHECK(stages_text(again) == "2|4");
    CHECK(again.calibration == before.calibration);
    CHECK(again.profile_hash == before.profile_hash);
    require_profile(again, profile);
    // Devices have the speed that the cluster says.
    Cluster slow = cluster_of(before);
    slow.devices[1].speed = 1.0 / 3;
    const Plan on_slow = taken(plan_again(before, profile, slow, request_of(before)));
    CHECK(on_slow.predicted.step > again.predicted.step);
  }

  TEST_CASE("a plan carries the request that it was made by") {
    PlanRequest request = pipeline();
    request.memory_limit = Bytes(100'000);
    request.optimizer = OptimizerName::adam;
    request.recompute = RecomputeMode::automatic;
    request.placement = Placement::packed;
    request.window = WindowRule::wide;
    request.linear_batch = true;
    const Profile profile = even_chain(8, {1});
    const PlanRequest read = request_of(taken(make_plan(profile, two_nodes(), request)));
    CHECK(read.mini_batch == 8);
    CHECK(read.micro_batches == 4);
    CHECK(read.schedule == "1f1b,gpipe");
    CHECK(read.memory_limit == Bytes(100'000));
    CHECK(read.optimizer == OptimizerName::adam);
    CHECK(read.recompute == RecomputeMode::automatic);
    CHECK(read.placement == Placement::packed);
    CHECK(read.linear_batch);
    CHECK_FALSE(read.extrapolate);
    CHECK(read.weight_policy == WeightPolicy::flush);
    CHECK(read.max_replicas == 1);  // it has none, so the order of its sums can be kept
    CHECK(read.replicas.empty());   // of four stages
    CHECK_FALSE(read.stages);
  }

  TEST_CASE("four stages become two on the node that is left, with the same schedule and micro-batches") {
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), pipeline()));
    const std::vector<int> first_node{0, 1};
    const Plan after =
        taken(plan_again(before, profile, some_devices(cluster_of(before), first_node), request_of(before)));
    CHECK(stages_text(after) == "4|4");
    CHECK(after.schedule.name == before.schedule.name);
    CHECK(after.training == before.training);
    CHECK(after.profile_hash == before.profile_hash);
    CHECK(after.devices.size() == 2);
  }

  TEST_CASE("what holds for every number of devices stays: without room for the weights there is no plan") {
    PlanRequest request = pipeline();
    // Weights, gradients and momentum of 800 B each: a quarter of them fits with what it keeps, all do not.
    request.memory_limit = Bytes(1000);
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), request));
    const std::vector<int> one{0};
    const auto found = plan_again(before, profile, some_devices(cluster_of(before), one), request_of(before));
    REQUIRE(std::holds_alternative<Infeasible>(found));
    CHECK_FALSE(std::get<Infeasible>(found).reason.empty());
  }

  TEST_CASE("micro-batches that leave no room give way to smaller ones") {
    // One device holds 3 * 800 B of weights, gradients and momentum. One micro-batch of 4 samples keeps
    // 8 * 4 * 10 = 320 B beside them, of 2 samples 160 B, of one 80 B.
    PlanRequest request = pipeline();
    request.mini_batch = 4;
    request.micro_batches = 1;
    request.schedule = "1f1b";
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), request));
    PlanRequest tight = request_of(before);
    tight.memory_limit = Bytes(2500);
    const std::vector<int> one{0};
    const Plan after = taken(plan_again(before, profile, some_devices(cluster_of(before), one), tight));
    CHECK(after.training.micro_batches == 4);
    CHECK(after.training.mini_batch == 4);
  }

  TEST_CASE("another profile is refused") {
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), pipeline()));
    CHECK_THROWS_AS(plan_again(before, even_chain(8, {1, 2}), two_nodes(), request_of(before)), Error);
  }
}

}  // namespace
}  // namespace pp::plan::plan_again_test
