// Frozen parameters in plans: no backward in front of what is trained, and gradients, state, versions and
// all-reduces of the trained bytes alone.
#include "libplan/cost/stage_memory.h"
#include "libplan/search/planner.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/frozen");

namespace pp::plan::frozen_test {
namespace {

constexpr std::int64_t kMb = 1'000'000;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Six linears without biases of 500 x 500 float32, 1 MB each, 1 ms forward and 2 ms backward, where the first
/// `frozen` are frozen.
Profile six(int frozen) {
  Profile profile;
  profile.model.name = "six";
  profile.model.inputs = {{"x", {{500}, DType::float32}}};
  profile.mode = ProfileMode::imported;
  profile.micro_batch_sizes = {1};
  for (int i = 0; i < 6; ++i) {
    const std::string name = "fc" + std::to_string(i);
    Layer layer{.name = name,
                .op = "linear",
                .inputs = {i == 0 ? "x" : "fc" + std::to_string(i - 1)},
                .attributes = {{"out_features", std::int64_t{500}}, {"bias", false}}};
    layer.frozen.all = i < frozen;
    profile.model.layers.push_back(layer);
  }
  profile.model.outputs = {"fc5"};
  profile.model = resolve(profile.model).graph;
  profile.model_hash = model_hash(profile.model);
  const ResolvedModel model = resolve(profile.model);
  for (int i = 0; i < 6; ++i) {
    LayerProfile& layer = profile.layers.emplace_back();
    layer.name = profile.model.layers[at(i)].name;
    set_parameters(layer, model, i, DType::float32);
    LayerPoint& point = layer.points.emplace_back();
    point.forward.median = Seconds(1e-3);
    point.backward.median = Seconds(i < frozen ? 0 : 2e-3);
    point.output = Bytes(2000);
    point.saved = Bytes(i < frozen ? 0 : 2000);
  }
  return profile;
}

Plan planned(const Profile& profile, const std::string& schedule, int stages, int micro_batches) {
  PlanRequest request;
  request.mini_batch = micro_batches;
  request.micro_batches = micro_batches;
  request.schedule = schedule;
  request.stages = stages;
  request.optimizer_state_ratio = 2;
  return std::get<Plan>(find_plan(profile, test::make_cluster(2), request));
}

}  // namespace

TEST_CASE("stages are balanced by what they run: a frozen stage runs forwards alone") {
  // 3 ms a layer: 9 | 9. With four frozen layers 4 | 6; 5 | 1 would be 7 | 3.
  CHECK(stages_text(planned(six(0), "1f1b", 2, 8)) == "3|3");
  const Plan plan = planned(six(4), "1f1b", 2, 8);
  CHECK(stages_text(plan) == "4|2");
  const StageCosts& body = plan.predicted.stages[0];
  CHECK(body.backward == Seconds(0));
  CHECK(body.weights == Bytes(4 * kMb));
  CHECK(body.frozen == Bytes(4 * kMb));
  CHECK(body.gradients == Bytes(0));
  CHECK(body.optimizer == Bytes(0));
  CHECK(body.update == Seconds(0));
  REQUIRE(plan.predicted.edges.size() == 1);
  CHECK(plan.predicted.edges[0].gradient_tensors == 0);
  // The last stage waits 4 ms (and 2 us for each message), then runs eight micro-batches of 2 + 4 ms.
  CHECK(plan.predicted.step.count() == doctest::Approx(4e-3 + 8 * 6e-3).epsilon(1e-3));
}

TEST_CASE("replicas add up trained gradients only, and one version holds what is frozen") {
  // Ring of two at 1 GB/s: 2 (2 - 1) / 2 of the bytes, 2 or 6 MB.
  CHECK(planned(six(0), "data-parallel", 1, 2).predicted.stages[0].all_reduce.count() == exactly(6e-3));
  CHECK(planned(six(4), "data-parallel", 1, 2).predicted.stages[0].all_reduce.count() == exactly(2e-3));
  const StageBytes bytes = stage_bytes({.parameters = 10, .buffers = 2, .frozen = 6, .gradients = 4},
                                       {.versions = 3, .optimizer = {.state_ratio = 2}});
  CHECK(bytes.weights == 12);
  CHECK(bytes.gradients == 4);
  CHECK(bytes.optimizer == 8);
  CHECK(bytes.versions == 2 * 6);
  StageCosts costs;
  costs.weights = Bytes(12);
  costs.frozen = Bytes(6);
  costs.versions = 3;
  CHECK(costs.fixed() == Bytes(24));
}

}  // namespace pp::plan::frozen_test

TEST_SUITE_END();
