// Optimizer state that the replicas of a stage share, and what training holds in mixed precision.
#include <algorithm>

#include "libplan/answer/make_plan.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/price/predict.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/enumerated.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/shard");

namespace pp::plan::shard_test {
namespace {

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest adam_request(int mini_batch, ShardChoice shard) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(mini_batch);
  request.schedule = "1f1b";
  request.optimizer = OptimizerName::adam;
  request.shard = shard;
  return request;
}

/// Layers of 1 to 9 ms with weights, activations and an update that counts.
Profile random_profile(test::Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({.forward_ms = static_cast<double>(random.integer(1, 9)),
                           .backward_ms = static_cast<double>(random.integer(1, 9)),
                           .parameters = random.integer(0, 9) * 1'000'003LL,
                           .output = random.integer(1, 5) * 100'000LL,
                           .saved = random.integer(1, 9) * 1'000'000LL});
  }
  Profile profile = test::make_profile(spec);
  OptimizerProfile& adam = profile.optimizers.emplace_back();
  adam.name = "adam";
  adam.state_bytes_per_parameter_byte = 2;
  adam.parameters = Bytes(10'000'000);
  adam.update.median = Seconds(0.004);
  return profile;
}

}  // namespace

TEST_CASE("a public step of Llama-3-70B: 6 bytes a parameter on every replica, 12 shared by four") {
  // Twelve layers in two stages, four replicas, mixed precision, Adam. A layer has 2*8192^2 + 2*8192*1024 +
  // 3*8192*28672 = 855,638,016 parameters, the embedding 128,256*8192; the first stage holds both: 6.184e9.
  // Two bytes of weights and four of gradients each, and (4 + 8) / 4 of state: 55.7e9 bytes, of 66.55 GiB that
  // were measured with the activations (SimuMax's rows of a B200).
  const std::int64_t parameters = 6 * 855'638'016LL + 128'256LL * 8192;
  Profile profile = test::make_profile({{{1, 2, 2 * parameters, 0, 0, 0, 0}}, {}, {1}});
  profile.dtype = DType::bfloat16;
  const OptimizerCost cost = optimizer_cost(profile, OptimizerName::adam, {}, Precision::mixed);
  StageContents contents{.parameters = 2 * parameters, .gradients = 2 * parameters};
  const StageBytes bytes = stage_bytes(contents, {.optimizer = cost, .sharers = 4});
  CHECK(bytes.weights == 2 * parameters);
  CHECK(bytes.gradients == 4 * parameters);
  CHECK(bytes.optimizer == 3 * parameters);
  CHECK(bytes.total() == doctest::Approx(55.7e9).epsilon(1e-3));
}

TEST_CASE(
    "replicas that share the state exchange gradients one way and weights the other, update a part each") {
  // One layer of F 1, B 2 ms and 12 MB, three replicas, three micro-batches, 1 MB/ms. All-reduce: 2*2/3*12 = 16
  // ms. Shared: 2/3*(12 + 12)/1 = 16 ms as well. The update of 12 MB takes 3 ms, or 1 of a third.
  Profile profile = test::make_profile({{{1, 2, 12'000'000, 0, 0, 0, 0}}, {}, {1}});
  OptimizerProfile& adam = profile.optimizers.emplace_back();
  adam.name = "adam";
  adam.state_bytes_per_parameter_byte = 2;
  adam.parameters = Bytes(12'000'000);
  adam.update.median = Seconds(0.003);
  PlanRequest request = adam_request(3, ShardChoice::none);
  request.replicas = {3};
  const auto plan_of = [&](ShardChoice shard) {
    request.shard = shard;
    return std::get<Plan>(make_plan(profile, test::make_cluster(3, 0, 1e9), request));
  };
  const Plan whole = plan_of(ShardChoice::none), shared = plan_of(ShardChoice::optimizer);
  CHECK(whole.predicted.makespan.count() == exactly(0.003 + 0.016 + 0.003));
  CHECK(shared.predicted.makespan.count() == exactly(0.003 + 0.016 + 0.001));
  CHECK(whole.predicted.workers[0].memory.optimizer == Bytes(24'000'000));
  CHECK(shared.predicted.workers[0].memory.optimizer == Bytes(8'000'000));
  CHECK(whole.training.shard == Shard::none);
  CHECK(shared.training.shard == Shard::optimizer);
  CHECK(plan_of(ShardChoice::automatic).training.shard == Shard::optimizer);
  // What a plan costs is read from its document.
  CHECK(predict(shared, profile, cluster_of(shared), request).step == shared.predicted.step);
}

TEST_CASE("sharing is the plan's only way into little memory, and none without replicas") {
  // 10 MB of weights take 10 + 10 + 20 alone, 10 + 10 + 10 on two that share: a limit of 35 MB.
  const Profile profile = test::make_profile({{{1, 2, 10'000'000, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request = adam_request(2, ShardChoice::none);
  request.memory_limit = Bytes(35'000'000);
  const Cluster cluster = test::make_cluster(2, 0, 1e9);
  CHECK(std::holds_alternative<Infeasible>(make_plan(profile, cluster, request)));
  request.shard = ShardChoice::automatic;
  const Plan plan = std::get<Plan>(make_plan(profile, cluster, request));
  CHECK(plan.stages[0].workers.size() == 2);
  CHECK(plan.training.shard == Shard::optimizer);
  // One layer alone: 10 + 10 + 20 without sharing; two devices cannot get below 10 + 10 + 10.
  const auto reason = [&](ShardChoice shard, std::int64_t limit) {
    request.shard = shard;
    request.memory_limit = Bytes(limit);
    return std::get<Infeasible>(make_plan(profile, cluster, request)).reason;
  };
  CHECK(reason(ShardChoice::none, 35'000'000).starts_with("does not fit: layer a alone needs 40000000 bytes"));
  CHECK(reason(ShardChoice::optimizer, 25'000'000)
            .starts_with("does not fit: layer a alone needs 30000000 bytes"));
  request.shard = ShardChoice::automatic;
  request.memory_limit.reset();
  const Plan alone = std::get<Plan>(make_plan(profile, test::make_cluster(1, 0, 1e9), request));
  CHECK(alone.training.shard == Shard::none);
}

TEST_CASE("1,000 small problems against all plans there are, memory to the byte of the formula") {
  test::Random random(45);
  int feasible = 0, shared = 0, limited = 0;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, random.integer(2, 4));
    const Cluster cluster = test::make_cluster(random.integer(2, 4), 0, random.integer(1, 20) * 1e8);
    PlanRequest request = adam_request(random.integer(2, 4), ShardChoice::optimizer);
    request.schedule = random.integer(0, 1) == 0 ? "1f1b" : "gpipe";
    request.window = WindowRule::win;
    if (random.integer(0, 1) == 0) request.memory_limit = Bytes(random.integer(20, 120) * 1'000'000LL);
    limited += request.memory_limit ? 1 : 0;
    const test::Enumerated all(profile, cluster, request);
    double best = std::numeric_limits<double>::infinity();
    all.for_each([&](const Assignment& assignment) { best = std::min(best, all.step(assignment)); });
    const SearchOutcome found = test::searched(profile, cluster, request);
    REQUIRE(found.ranked.empty() == std::isinf(best));
    REQUIRE(found.bound <= best * (1 + 1e-9));
    if (found.ranked.empty()) continue;
    ++feasible;
    CHECK(test::step_of(found) <= best * 1.05);
    CHECK(test::step_of(found) >= best * (1 - 1e-9));
    const Finalist& plan = found.ranked.front();
    for (std::size_t s = 0; s < plan.partition.size(); ++s) {
      std::int64_t parameters = 0;
      for (const int layer : plan.assignment.stage_layers[s])
        parameters += profile.layers[at(layer)].parameters.value;
      const std::int64_t q = plan.partition[s].replicas;
      shared += q > 1 ? 1 : 0;
      CHECK(plan.prediction.stages[s].optimizer.value == (2 * parameters + q - 1) / q);
      CHECK(plan.prediction.stages[s].gradients.value == parameters);
    }
  }
  CHECK(feasible > 700);
  CHECK(limited > 400);
  CHECK(shared > 300);
}

TEST_CASE("precisions that the profile's type does not have are refused") {
  Profile profile = test::make_profile({{{1, 2, 10, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request = adam_request(2, ShardChoice::none);
  const auto refusal = [&] {
    try {
      make_plan(profile, test::make_cluster(2), request);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  request.precision = Precision::mixed;
  CHECK(refusal() ==
        "precision mixed keeps weights of a half type, and the profile is of float32; profile the model with "
        "--dtype bfloat16");
  profile.dtype = DType::bfloat16;
  CHECK(refusal() == "");
  request.precision = Precision::autocast;
  CHECK(refusal() ==
        "precision autocast keeps float32 weights, and the profile is of bfloat16; profile the model with "
        "--dtype float32, or plan with --precision mixed, which holds as many bytes: half weights for the "
        "products, float32 ones for the updates");
  request.precision = Precision::plain;
  request.schedule = "pipedream";
  request.micro_batches.reset();
  request.shard = ShardChoice::optimizer;
  CHECK(refusal() ==
        "schedule pipedream updates weights that its replicas do not share; leave --shard out, or plan with "
        "1f1b");
}

}  // namespace pp::plan::shard_test

TEST_SUITE_END();
