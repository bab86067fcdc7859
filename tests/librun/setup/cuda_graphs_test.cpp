#include "librun/setup/checks.h"

#include "libprofile/core/error.h"
#include "tests/librun/models.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

namespace cuda_graphs_test {

using namespace pp;

namespace {

/// What is wrong with the plan on GPUs; empty: nothing.
std::string refusal(const plan::Plan& plan, DeviceKind kind = DeviceKind::cuda) {
  std::vector<Device> devices = plan.devices;
  for (Device& device : devices) device.kind = kind;
  try {
    run::check_cuda_graphs(plan, devices, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& schedule, std::vector<int> cuts = {3}, int micro_batches = 4) {
  return refusal(make_plan(
      {.model = test::mlp(3), .cuts = std::move(cuts), .schedule = schedule, .micro_batches = micro_batches}));
}

}  // namespace

TEST_SUITE("librun/setup/cuda_graphs") {
  TEST_CASE("synchronous schedules on GPUs can be recorded") {
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
      CAPTURE(schedule);
      CHECK(refusal(schedule) == "");
    }
    for (const char* schedule : {"interleaved", "zb-v", "dualpipe-v"}) {
      CAPTURE(schedule);
      CHECK(refusal(schedule, {2, 3, 5}) == "");
    }
  }

  TEST_CASE("versions of weights, weights on the host and CPUs cannot") {
    CHECK(
        refusal("pipedream", {3}, 1) ==
        "--cuda-graphs: schedule pipedream has weights at several places (policy stash), a graph reads them at "
        "one; plan with a synchronous schedule, or leave out --cuda-graphs");
    PlanSpec harmony{.model = test::mlp(3), .cuts = {2, 3, 5}, .schedule = "harmony-pp", .chunks = 2};
    CHECK(refusal(make_plan(harmony)) ==
          "--cuda-graphs: schedule harmony-pp brings weights to the device anew, a graph reads them at one "
          "place; plan with another, or leave out --cuda-graphs");
    CHECK(refusal(make_plan({.model = test::mlp(3)}), DeviceKind::cpu) ==
          "--cuda-graphs: worker 0: device cpu:0 is no GPU; plan for GPUs, or leave out --cuda-graphs");
  }

  // dualpipe splits some backwards: of stage 2 here the first forward's, whose weight gradient comes behind the
  // whole backward of the second, so that this one is the first to add.
  TEST_CASE("the kinds of a stage's passes are those of its program") {
    using Kind = run::PassKind;
    const plan::Program program =
        plan::parse_program("F2.0 F0.0 F2.1 I2.0 B2.1 B0.0 W2.0 F2.2 R2.2 B2.2 U0 U2");
    const std::vector<Kind> kinds = run::pass_kinds(program, StageId{2});
    REQUIRE(kinds.size() == 3);
    CHECK(kinds[0] == Kind{.splits = true});
    CHECK(kinds[1] == Kind{.sets_sums = true});
    CHECK(kinds[2] == Kind{.runs_again = true});
    CHECK(run::pass_kinds(program, StageId{0}) == std::vector<Kind>{{.sets_sums = true}});
    CHECK(run::pass_kinds(program, StageId{1}).empty());
  }

  // dropout_mlp: fc0 drop0 tanh0 ...; its first dropout is in the first stage.
  TEST_CASE("a stage that draws random numbers is not recorded, others are") {
    PlanSpec spec{.model = test::dropout_mlp()};
    const ResolvedModel model = resolve(spec.model);
    spec.cuts = {model.layer_count() - 1};
    const plan::Plan plan = make_plan(spec);
    const std::string why = run::why_not_recorded(plan, model, StageId{0});
    CHECK(why.find("draws random numbers") != std::string::npos);
    CHECK(run::why_not_recorded(plan, model, StageId{1}) == "");
  }
}

}  // namespace cuda_graphs_test
