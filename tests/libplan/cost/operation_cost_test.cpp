// Fixed costs of operations and updates from the profile to the price of a plan.
#include "libplan/answer/make_plan.h"
#include "libplan/cost/priced_model.h"
#include "libplan/plan/plan.h"
#include "libplan/price/predict.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/operation_cost");

namespace pp::plan::operation_cost_test {
namespace {

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

TimeStat seconds(double value) { return {Seconds(value), Seconds(value), Seconds(value), 0}; }

Profile with_overhead(Profile profile, double forward, double backward) {
  profile.operation_overhead = OperationOverhead{seconds(forward), seconds(backward)};
  return profile;
}

/// An update takes 1 ms and 1 ns for each byte of parameters.
Profile with_update(Profile profile) {
  profile.optimizers = {{"sgd",
                         1,
                         seconds(0.005),
                         Bytes(4'000'000),
                         {{Bytes(1'000'000), seconds(0.002)}, {Bytes(3'000'000), seconds(0.004)}}}};
  return profile;
}

/// Four layers of 1 and 2 ms with 1 MB of weights each, tensors without bytes.
Profile four_layers() {
  return test::make_profile({std::vector<test::LayerRow>(4, {1, 2, 1'000'000, 0, 0, 0, 0}), {}, {1}});
}

PlanRequest request_of(int micro_batches, const std::string& schedule) {
  PlanRequest request;
  request.mini_batch = micro_batches;
  request.micro_batches = micro_batches;
  request.schedule = schedule;
  return request;
}

Plan planned(const Profile& profile, int stages, const std::string& schedule) {
  PlanRequest request = request_of(4, schedule);
  request.stages = stages;
  request.replicas.assign(at(stages), 1);
  return std::get<Plan>(make_plan(profile, test::make_cluster(stages), request));
}

}  // namespace

TEST_CASE("every operation of a stage pays the fixed cost once, every update its own") {
  const Profile profile = with_update(with_overhead(four_layers(), 0.0005, 0.00025));
  // One stage: F 4 + 0.5, B 8 + 0.25, U 1 + 4 ms; four micro-batches, then the update.
  const Plan one = planned(profile, 1, "1f1b");
  CHECK(one.predicted.makespan.count() == exactly(4 * (0.0045 + 0.00825) + 0.005));
  // Two of two layers: F 2.5, B 4.25 and U 1 + 2 ms; fill and drain cost one F + B more.
  const Plan two = planned(profile, 2, "1f1b");
  CHECK(two.predicted.makespan.count() == exactly(5 * (0.0025 + 0.00425) + 0.003));
  // Unsplit profiles take half of the backward for either half, and both pay: I = W = 2 + 0.25.
  const Plan split = planned(profile, 2, "zb-h1");
  CHECK(split.predicted.stages[0].input_gradient.count() == exactly(0.00225));
  CHECK(split.predicted.stages[0].weight_gradient.count() == exactly(0.00225));
}

TEST_CASE("an update costs as one that makes a new version where passes hold the weights before") {
  Profile profile = with_update(four_layers());
  profile.optimizers[0].new_version = UpdatePoint{Bytes(1'000'000), seconds(0.003)};
  const auto updates = [&](const std::string& schedule, int micro_batches) {
    PlanRequest request = request_of(micro_batches, schedule);
    request.stages = 2;
    request.replicas = {1, 1};
    const Plan plan = std::get<Plan>(make_plan(profile, test::make_cluster(2), request));
    return std::vector{plan.predicted.stages[0].update, plan.predicted.stages[1].update};
  };
  // Two layers each: 1 + 2 ms in place, 3 / (1 + 1) times as long into other memory. The last stage of a stream
  // has one micro-batch in flight, and none when it updates; two versions take turns whoever holds them.
  const Seconds in_place(0.003), new_version(0.0045);
  const auto check = [&](const std::string& schedule, int micro_batches, Seconds first, Seconds last) {
    CAPTURE(schedule);
    const std::vector<Seconds> found = updates(schedule, micro_batches);
    CHECK(found[0].count() == exactly(first.count()));
    CHECK(found[1].count() == exactly(last.count()));
  };
  check("1f1b", 4, in_place, in_place);
  check("pipedream", 1, new_version, in_place);
  check("vertical-sync", 1, new_version, new_version);
  check("2bw", 4, new_version, new_version);
  check("spectrain", 1, in_place, in_place);
}

TEST_CASE("a profile without them costs nothing more") {
  const PricedModel model = price_model(four_layers(), std::vector<int>{1}, {});
  CHECK(model.fixed == OperationCost{});
  CHECK(optimizer_cost(four_layers(), OptimizerName::sgd, {}, Precision::plain).update_fixed == 0);
}

TEST_CASE("members of a group add up among themselves, and divide what replicas share: experts fewer") {
  Profile profile = four_layers();
  profile.optimizers = {{"adam", 2, {Seconds(1)}, Bytes(8)}};  // 1/8 s a byte
  const auto found = [&] { return optimizer_cost(profile, OptimizerName::adam, {}, Precision::plain); };
  const OptimizerCost alone = found();
  profile.context_parallel = {.degree = 4, .sum_s_per_byte = 0.5};
  OptimizerCost cost = found();
  CHECK(alone.update({16}, 0) == exactly(2));
  CHECK(cost.update({16}, 0) == exactly(2 + 8));
  CHECK(cost.update({16}, 2) == exactly(2. / 8 + 8));  // two replicas of four members
  cost.gradient_ratio = 2;  // gradients scattered, weights gathered: (2 + 1) / 2 of 16 bytes each way
  CHECK(cost.update({16}, 2) == exactly(2. / 8 + 12));
  CHECK(cost.update({16}, 0) == exactly(2 + 16));
  CHECK(cost.held({12}, 0) == 12);
  CHECK(cost.held({12}, 1) == 3);
  CHECK(cost.held({12}, 3) == 1);
  CHECK(cost.reduction({16}, 0, true).bytes() == exactly(6));
  CHECK(alone.reduction({16}, 16, false).bytes() == exactly(32));  // each weight has two uses

  // Eight GPUs, two of them a tensor group: four have the same attention, two the same experts.
  profile.tensor_degree = 2;
  profile.context_parallel = {};
  profile.expert_parallel = {.degree = 4, .sum_s_per_byte = 0.5, .expert_sum_s_per_byte = 0.25};
  CHECK(found().members == 2);
  CHECK(found().expert_members == 1);
  profile.expert_parallel.degree = 8;
  cost = found();
  CHECK(cost.members == 4);
  CHECK(cost.expert_members == 1);
  CHECK(cost.held({16, 8}, 2) == (8. / 4 + 8) / 2);
  CHECK(cost.reduction({16, 8}, 0, false).bytes() == exactly(8. / 4 + 8));
  CHECK(cost.update({16, 8}, 2) == exactly(5. / 8 + 0.5 * 8 + 0.25 * 8));
  profile.tensor_degree = 4;
  profile.expert_parallel.degree = 2;
  CHECK(found().members == 1);
  CHECK(found().expert_members == 2);
}

TEST_CASE("an optimizer that was not profiled has its own state and the update of the nearest one") {
  Profile profile = four_layers();
  const auto cost = [&](OptimizerName name) { return optimizer_cost(profile, name, {}, Precision::plain); };
  CHECK(cost(OptimizerName::adam).state_ratio == 2);
  CHECK(cost(OptimizerName::rmsprop).update_per_byte == 0);
  // 8 bytes in 0.5 and 4 in 0.25 s: 1/16 s a byte; adamw 1/4 s a byte.
  profile.optimizers = {
      {"sgd", 1, {Seconds(0.5)}, Bytes(8), {{Bytes(8), {Seconds(0.5)}}, {Bytes(4), {Seconds(0.25)}}}},
      {"adamw", 2, {Seconds(2)}, Bytes(8), {{Bytes(8), {Seconds(2)}}, {Bytes(4), {Seconds(1)}}}}};
  CHECK(cost(OptimizerName::adagrad).update_per_byte == exactly(1. / 16));
  CHECK(cost(OptimizerName::adagrad).state_ratio == 1);
  CHECK(cost(OptimizerName::adam).update_per_byte == exactly(1. / 4));
  CHECK(cost(OptimizerName::adam).state_ratio == 2);
  CHECK(cost(OptimizerName::rmsprop).update_per_byte == exactly(1. / 4));
  CHECK(cost(OptimizerName::rmsprop).state_ratio == 1);
}

TEST_CASE("unequal micro-batches: the bound counts the fixed costs of the smaller one") {
  Profile profile = test::make_profile({{{1, 2, 0, 0, 0, 0, 0}}, {}, {1, 2}});
  profile = with_overhead(std::move(profile), 0.5, 0.25);
  const std::vector<int> sizes{2, 1};
  CHECK(price_model(profile, sizes, {}).fixed == OperationCost{0.5, 0.25});
  // The simulator scales all of a smaller micro-batch's operation by 3 ms / 6 ms.
  CHECK(cheapest_model(profile, sizes, {}).fixed == OperationCost{0.25, 0.125});
}

TEST_CASE("fixed costs alone limit the number of stages") {
  // Layers of 3 ms each and weights that replicas would reduce for seconds: without fixed costs four stages are
  // the fastest. With 8 ms for each micro-batch and stage one takes 4 * (12 + 8) = 80 ms, two
  // (4 + 1) * (6 + 8) = 70, three 3 * (6 + 8) + 12 + 3 * 8 = 78, four (4 + 3) * (3 + 8) = 77.
  const PlanRequest request = request_of(4, "gpipe");
  const Cluster cluster = test::make_cluster(4, 0, 1e6);
  const auto stages = [&](const Profile& profile) {
    return std::get<Plan>(make_plan(profile, cluster, request)).stages.size();
  };
  CHECK(stages(four_layers()) == 4);
  CHECK(stages(with_overhead(four_layers(), 0.003, 0.005)) == 2);
}

TEST_CASE("with fixed costs the bound stays below every plan, and a plan read back has its price") {
  test::Random random(61);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    test::ProfileSpec spec;
    for (int l = random.integer(1, 6); l > 0; --l)
      spec.layers.push_back({0.5 * random.integer(1, 9), 1.0 * random.integer(1, 9),
                             random.integer(0, 3) * 1'000'000, random.integer(0, 3) * 500'000, 0, 0, 0});
    const Profile profile = with_update(
        with_overhead(test::make_profile(spec), 0.001 * random.integer(0, 4), 0.001 * random.integer(0, 4)));
    Cluster cluster = test::make_cluster(random.integer(1, 4));
    if (round % 2 == 1) cluster.devices.front().speed = 2;
    const PlanRequest request = request_of(random.integer(1, 6), "auto");
    const Plan plan = std::get<Plan>(make_plan(profile, cluster, request));
    CHECK(test::searched(profile, cluster, request).bound <= plan.predicted.step.count() * (1 + 1e-9));
    CHECK(predict(plan, profile, cluster) == plan.predicted);
  }
}

}  // namespace pp::plan::operation_cost_test

TEST_SUITE_END();
