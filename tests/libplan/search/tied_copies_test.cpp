#include "libplan/price/tied_copies.h"

#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/plan/plan.h"
#include "libplan/price/predict.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/tied_copies");

namespace pp::plan::tied_copies_test {
namespace {

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Four linear layers of 3 + 6 ms; d uses the weights of a, 1 MB.
Profile shared_ends() {
  Profile profile = test::make_profile(
      {{{3, 6, 1'000'000, 0, 0, 0, 0}, {3, 6, 0, 0, 0, 0, 0}, {3, 6, 0, 0, 0, 0, 0}, {3, 6, 0, 0, 0, 0, 0}},
       {},
       {1}});
  profile.model.inputs = {{"x", {{4}, DType::float32}}};
  for (Layer& layer : profile.model.layers) {
    layer.op = "linear";
    layer.attributes = {{"out_features", std::int64_t{4}}};
  }
  profile.model.layers[0].inputs = {"x"};
  profile.model.layers[3].weights_of = "a";
  profile.model = resolve(profile.model).graph;
  profile.model_hash = model_hash(profile.model);
  return profile;
}

PlanRequest two_devices(TiedWeights tied) {
  PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = "gpipe";
  request.max_replicas = 1;
  request.tied = tied;
  return request;
}

Plan planned(const PlanRequest& request, double bandwidth = 1e9) {
  return std::get<Plan>(make_plan(shared_ends(), test::make_cluster(2, 0, bandwidth), request));
}

std::string refusal(const Plan& plan) {
  try {
    check_plan(plan);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("only weights whose layers stand in several stages have copies") {
  const PlanGraph graph = make_graph(shared_ends());
  CHECK(graph.shared == std::vector<std::vector<int>>{{0, 3}});
  CHECK(tied_copies(graph, {0, 0, 0, 0}).empty());
  const std::vector<TiedCopies> copies = tied_copies(graph, {0, 1, 1, 2});
  REQUIRE(copies.size() == 1);
  CHECK(copies[0].owner == 0);
  CHECK(copies[0].stages == std::vector<int>{0, 2});
}

// a's weights are 1 MB, and d uses them: their gradients are two until the update adds them up. A stage with a
// copy has the one of its own use.
TEST_CASE("each use of a shared weight has a gradient") {
  PlanRequest request = two_devices(TiedWeights::stage);
  const auto gradients = [&](std::vector<int> cuts) {
    request.cuts = std::move(cuts);
    request.stages = static_cast<int>(request.cuts.size()) + 1;
    std::vector<Bytes> bytes;
    for (const StageCosts& stage : planned(request).predicted.stages) bytes.push_back(stage.gradients);
    return bytes;
  };
  CHECK(gradients({}) == std::vector<Bytes>{Bytes(2'000'000)});
  request.tied = TiedWeights::copies;
  CHECK(gradients({2}) == std::vector<Bytes>{Bytes(1'000'000), Bytes(1'000'000)});
}

TEST_CASE("every worker of a copy lists the reduction behind its AR") {
  std::vector<WorkerProgram> programs;
  for (const char* text : {"F0.0 B0.0 AR0 U0", "F0.1 B0.1 AR0 U0", "F1.0 B1.0 U1", "F2.0 B2.0 U2"})
    programs.push_back({parse_program(text), {}});
  add_tied_reductions(programs, {{0, {0, 2}}, {1, {1, 2}}}, {{0, 1}, {2}, {3}});
  CHECK(to_text(programs[0].program) == "F0.0 B0.0 AR0 ARg0 U0");
  CHECK(to_text(programs[1].program) == "F0.1 B0.1 AR0 ARg0 U0");
  CHECK(to_text(programs[2].program) == "F1.0 B1.0 ARg1 U1");
  CHECK(to_text(programs[3].program) == "F2.0 B2.0 ARg0 ARg1 U2");
}

TEST_CASE("with copies the model can be cut: two stages and one reduction instead of one stage") {
  // In one stage: 4 * 36 ms. Two stages of 18 ms: (4 + 2 - 1) * 18 = 90, then 1 MB over two workers of 1 GB/s,
  // ring 2(r-1)/r: 1 ms.
  const Plan together = planned(two_devices(TiedWeights::stage));
  CHECK(together.predicted.makespan.count() == exactly(0.144));
  CHECK(together.tied.empty());

  const Plan copies = planned(two_devices(TiedWeights::copies));
  CHECK(copies.predicted.makespan.count() == exactly(0.091));
  CHECK(stages_text(copies) == "2|2");
  REQUIRE(copies.tied.size() == 1);
  CHECK(copies.tied[0] == TiedParameter{"a.weight, a.bias", {"a", "d"}, {StageId{0}, StageId{1}}});
  CHECK(copies.predicted.stages[0].weights == Bytes(1'000'000));
  CHECK(copies.predicted.stages[1].weights == Bytes(1'000'000));
  CHECK(to_text(copies.workers[1].program.program).ends_with("B1.3 ARg0 U1"));
  CHECK(copies.context.at("tied") == "copies");
  check_plan(copies);
}

TEST_CASE("a plan with copies survives its file, and is simulated and priced again to the same step") {
  const Plan plan = planned(two_devices(TiedWeights::copies));
  const Plan read = parse_plan(dump_json(to_json(plan)));
  CHECK(read == plan);
  CHECK(simulate(simulation_input(read)).makespan == plan.predicted.makespan);
  CHECK(predict(read, shared_ends(), cluster_of(read)) == plan.predicted);
}

TEST_CASE("where one stage does not hold all layers of shared weights, the remedy is copies") {
  // 1 MB of weights, as much of gradients and of the optimizer's state for each of a, b and c: 9 MB together,
  // 6 MB on each of two devices.
  Profile profile = shared_ends();
  profile.layers[1].parameters = profile.layers[2].parameters = Bytes(1'000'000);
  PlanRequest request = two_devices(TiedWeights::copies);
  request.memory_limit = Bytes(7'000'000);
  REQUIRE(std::holds_alternative<Plan>(make_plan(profile, test::make_cluster(2), request)));
  request.tied = TiedWeights::stage;
  const auto result = make_plan(profile, test::make_cluster(2), request);
  REQUIRE(std::holds_alternative<Infeasible>(result));
  CHECK(std::get<Infeasible>(result).remedy.starts_with("--tied copies"));
}

TEST_CASE("a reduction that costs more than it saves: all in one stage") {
  // At 10 MB/s the reduction of 1 MB takes 100 ms: 190 instead of 144.
  CHECK(planned(two_devices(TiedWeights::copies), 1e7).predicted.makespan.count() == exactly(0.144));
}

TEST_CASE("what stages share has to stand in /tied, and the program reduces it") {
  Plan plan = planned(two_devices(TiedWeights::copies));
  plan.tied[0].stages = {StageId{0}};
  CHECK(refusal(plan) ==
        "/tied: must list what layers of several stages share: a.weight, a.bias of stages 0 1");
  plan.tied.clear();
  CHECK(refusal(plan) == "/stages/1/layers: \"d\" shares weights with \"a\" of stage 0; put both in one stage");
  plan = planned(two_devices(TiedWeights::copies));
  std::erase_if(plan.workers[0].program.program,
                [](const Op& op) { return op.kind == OpKind::tied_all_reduce; });
  CHECK(refusal(plan) ==
        "/workers: worker 0: ARg0 is listed 0 times; every worker of the group's stages lists it once, in "
        "front of "
        "its first U");
  plan = planned(two_devices(TiedWeights::copies));
  plan.predicted.tied_all_reduce.clear();
  CHECK(refusal(plan) == "/predicted/tied_all_reduce_s: has 0 entries for 1 entries of /tied");
  plan = planned(two_devices(TiedWeights::stage));
  plan.tied = {{"a.weight", {"a", "d"}, {StageId{0}, StageId{1}}}};
  CHECK(refusal(plan) == "/tied: must be empty: layers that share weights are in one stage");
}

TEST_CASE("schedules that cannot have copies say so") {
  PlanRequest request = two_devices(TiedWeights::copies);
  request.schedule = "zb-h1";
  CHECK_THROWS_WITH(
      make_plan(shared_ends(), test::make_cluster(2), request),
      "schedule zb-h1 keeps shared weights in one stage; leave --tied out, or plan with gpipe or 1f1b");
}

}  // namespace pp::plan::tied_copies_test

TEST_SUITE_END();
