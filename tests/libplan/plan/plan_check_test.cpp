#include "libplan/answer/make_plan.h"
#include "libplan/plan/plan.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/turns.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/plan/plan_check");

namespace pp::plan::plan_check_test {
namespace {

/// Layers a, b, c | d on devices 0, 1 and 2; six micro-batches.
Plan valid_plan() {
  PlanRequest request;
  request.mini_batch = 6;
  request.micro_batches = 6;
  request.cuts = {3};
  request.replicas = {2, 1};
  return std::get<Plan>(make_plan(test::example_c(), test::make_cluster(3), request));
}

/// The message of the data error after a change.
template <class Change>
std::string refusal(Change change) {
  Plan plan = valid_plan();
  change(plan);
  return pp::test::error_of([&] { check_plan(plan); }, ErrorKind::data);
}

}  // namespace

TEST_CASE("replicas whose turns repeat after 36,036 micro-batches do the same, or the plan is refused") {
  Plan plan = test::many_turns({13, 11, 9, 7, 4});
  CHECK_NOTHROW(check_plan(plan));
  // The second replica of stage 0 runs its first two forwards the other way round.
  Stream& stream = *plan.workers[1].program.stream;
  std::swap(stream.prologue[0], stream.prologue[1]);
  CHECK_THROWS_WITH(
      check_plan(plan),
      "/workers: the streams do not repeat within the limit of 2000000 operations; give the stages "
      "replicas with a smaller common multiple, and all streams of a stage one period");
}

TEST_CASE("every layer in exactly one stage") {
  CHECK(refusal([](Plan&) {}) == "");
  CHECK(refusal([](Plan& p) { p.stages[1].layers = {"a"}; }) ==
        "/stages/1/layers: layer \"a\" is in stage 0 already");
  CHECK(refusal([](Plan& p) { p.stages[0].layers.pop_back(); }) == "/stages: layer \"c\" is in no stage");
  CHECK(refusal([](Plan& p) { p.stages[1].layers = {"x"}; }) ==
        "/stages/1/layers: layer \"x\" is not in the model");
  CHECK(refusal([](Plan& p) { p.stages[1].layers.clear(); }) ==
        "/stages/1/layers: must not be empty; give the stage at least one layer");
  CHECK(refusal([](Plan& p) { p.stages.clear(); }) ==
        "/stages: must not be empty; a plan needs at least one stage");
}

TEST_CASE("a layer comes after what it reads") {
  CHECK(refusal([](Plan& p) { std::swap(p.stages[0].layers, p.stages[1].layers); }) ==
        "/stages/0/layers: \"d\" reads \"c\", which stands in stage 1; a layer comes after what it reads");
  CHECK(refusal([](Plan& p) { std::swap(p.stages[0].layers[0], p.stages[0].layers[1]); }) ==
        "/stages/0/layers: \"b\" reads \"a\", which stands behind it; a layer comes after what it reads");
}

TEST_CASE("workers and devices exist and are used once") {
  CHECK(refusal([](Plan& p) { p.stages[0].workers.clear(); }) ==
        "/stages/0/workers: must not be empty; give the stage at least one worker");
  CHECK(refusal([](Plan& p) { p.stages[1].workers = {WorkerId{7}}; }) ==
        "/stages/1/workers: 7 is not in /workers");
  CHECK(refusal([](Plan& p) { p.stages[1].workers = {WorkerId{0}}; }) ==
        "/stages/1/workers: worker 0 runs stage 0 already");
  CHECK(refusal([](Plan& p) { p.stages[0].workers.pop_back(); }) ==
        "/workers/1: is in no stage; remove the worker");
  CHECK(refusal([](Plan& p) { p.workers[2].device = DeviceId{9}; }) ==
        "/workers/2/device: 9 is not in /devices");
  CHECK(refusal([](Plan& p) { p.workers[2].id = WorkerId{5}; }) ==
        "/workers/2/id: is 5; number the workers 0, 1, 2, ... in their order");
  CHECK(refusal([](Plan& p) { p.devices[1].id = DeviceId{0}; }) == "/devices/1/id: 0 stands twice");
  CHECK(refusal([](Plan& p) { p.devices[1].slot = 0; }) ==
        "/devices/1/slot: 0 is not above the 0 in front of it");
  CHECK(refusal([](Plan& p) { p.workers.clear(); }) ==
        "/workers: must not be empty; a plan needs at least one worker");
}

TEST_CASE("schedule, policy and micro-batches go together") {
  CHECK(refusal([](Plan& p) {
          p.schedule.name = "dream";
        }).starts_with("/schedule/name: unknown name \"dream\"; use one of naive, data-parallel, gpipe, "));
  CHECK(refusal([](Plan& p) { p.schedule.weight_policy = WeightPolicy::stash; }) ==
        "/schedule/weight_policy: \"stash\" does not go with schedule 1f1b; use \"flush\"");
  CHECK(refusal([](Plan& p) { p.schedule.chunks_per_worker = 2; }) ==
        "/schedule/chunks_per_worker: is 2, schedule 1f1b runs 1 stage per worker");
  CHECK(refusal([](Plan& p) { p.training.mini_batch = 5; }) ==
        "/training/micro_batches: 6 exceeds the mini-batch of 5 samples");
  CHECK(refusal([](Plan& p) {
          p.schedule.name = "pipedream", p.schedule.weight_policy = WeightPolicy::stash;
        }) == "/training/micro_batches: is 6, schedule pipedream updates after every micro-batch and needs 1");
  CHECK(refusal([](Plan& p) { p.stages[0].recompute = {"a"}; }) ==
        "/stages/0/recompute: must be empty with recompute \"never\"; use \"per_stage\"");
}

TEST_CASE("what runs again agrees with the policy and the programs") {
  // Stage 1 is layer d on worker 2, six micro-batches.
  const auto whole = [](Plan& p, RecomputePolicy policy) {
    p.schedule.recompute = policy;
    Program& program = p.workers[2].program.program;
    for (auto op = program.begin(); op != program.end(); ++op) {
      if (op->kind != OpKind::backward) continue;
      op = program.insert(op, {OpKind::recompute, op->stage, op->micro_batch}) + 1;
    }
  };
  CHECK(refusal([&](Plan& p) { whole(p, RecomputePolicy::per_stage); }) == "");
  CHECK(refusal([&](Plan& p) { whole(p, RecomputePolicy::never); }) ==
        "/schedule/recompute: is \"never\", but the programs have R1.0; use \"per_stage\"");
  CHECK(refusal([&](Plan& p) {
          whole(p, RecomputePolicy::per_stage);
          p.stages[1].recompute = {"d"};
        }) == "/stages/1/recompute: must be empty: the programs run the whole stage again, R1.0");
  const auto layers = [](Plan& p, std::vector<std::string> names) {
    p.schedule.recompute = RecomputePolicy::per_stage;
    p.stages[0].recompute = std::move(names);
  };
  CHECK(refusal([&](Plan& p) { layers(p, {"a", "c"}); }) == "");
  CHECK(refusal([&](Plan& p) { layers(p, {"d"}); }) == "/stages/0/recompute: layer \"d\" is not in the stage");
  CHECK(refusal([&](Plan& p) {
          layers(p, {"a", "b", "a"});
        }) == "/stages/0/recompute: layer \"a\" stands twice");
}

TEST_CASE("programs are validated in full") {
  CHECK(refusal([](Plan& p) { p.workers[2].program.program.pop_back(); }).starts_with("/workers: "));
  CHECK(refusal([](Plan& p) { p.workers[2].program.stream = Stream{}; }) ==
        "/workers/2: has a stream; schedule 1f1b needs a program");
}

TEST_CASE("the promise has to fit the devices and the plan") {
  CHECK(refusal([](Plan& p) {
          p.devices[2].memory = Bytes(1000);
          p.predicted.workers[2].memory.peak = Bytes(1001);
        }) ==
        "/predicted/workers/2/peak_bytes: 1001 exceeds the 1000 bytes of cpu:2; use more stages or smaller "
        "micro-batches");
  CHECK(refusal([](Plan& p) { p.predicted.workers.pop_back(); }) ==
        "/predicted/workers: has 2 entries for 3 workers");
  CHECK(refusal([](Plan& p) { p.predicted.stages.pop_back(); }) ==
        "/predicted/stages: has 1 entries for 2 stages");
  CHECK(refusal([](Plan& p) { p.predicted.edges[0].to = StageId{2}; }) ==
        "/predicted/edges/0: must lead from a stage to a later one, below 2");
  CHECK(refusal([](Plan& p) { p.predicted.micro_batch_scale = {1}; }) ==
        "/predicted/micro_batch_scale: has 1 entries for 6 micro-batches");
}

TEST_CASE("a plan of another model or profile is refused by name and hash") {
  const Plan plan = valid_plan();
  require_profile(plan, test::example_c());
  Profile other = test::example_c();
  other.model.name = "other";
  CHECK_THROWS_WITH(require_model(plan, other.model),
                    ("the plan is for model \"example\" (" + model_hash(plan.model) + "), not for \"other\" (" +
                     model_hash(other.model) + "); plan this model")
                        .c_str());
  other = test::example_c();
  other.layers[0].points[0].forward.median = Seconds(1);
  CHECK_THROWS_WITH(require_profile(plan, other),
                    ("/profile_hash: the plan was made from profile " + plan.profile_hash + ", not from " +
                     profile_hash(other) + "; plan again with this profile")
                        .c_str());
}

}  // namespace pp::plan::plan_check_test

TEST_SUITE_END();
