// What is checked before a run: the memory that it needs on the host, and what CUDA graphs can record.
#include "librun/setup/host_memory.h"

#include "libprofile/core/error.h"
#include "librun/setup/checks.h"
#include "tests/apps/sample_profile.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/models.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

namespace host_memory_test {

using namespace pp;

namespace {

/// linear 64x64 (4160 parameters), relu, linear, relu on samples of 64 numbers; mini-batch 8 in 4.
run::HostNeed need_of(PlanSpec spec, DeviceKind kind = DeviceKind::cpu) {
  spec.model = test::sample_profile(std::vector<double>(4, 1.0)).model;
  plan::Plan plan = make_plan(spec);
  for (Device& device : plan.devices) device.kind = kind;
  return run::least_host_memory(plan, resolve(plan.model), plan.devices, 1000, /*copies=*/3);
}

std::string refusal(const run::HostNeed& need, std::int64_t available) {
  return pp::test::error_of([&] { run::check_host_memory(need, Bytes(available)); }, ErrorKind::device);
}

/// What is wrong with the plan on GPUs; empty: nothing.
std::string refusal(const plan::Plan& plan, DeviceKind kind = DeviceKind::cuda) {
  std::vector<Device> devices = plan.devices;
  for (Device& device : devices) device.kind = kind;
  return pp::test::error_of([&] { run::check_cuda_graphs(plan, devices, {}); });
}

std::string refusal(const std::string& schedule, std::vector<int> cuts = {3}, int micro_batches = 4) {
  return refusal(make_plan(
      {.model = test::mlp(3), .cuts = std::move(cuts), .schedule = schedule, .micro_batches = micro_batches}));
}

}  // namespace

TEST_SUITE("librun/setup/host_memory") {
  TEST_CASE("every CPU worker counts its weights three times and its largest output; data count once") {
    // One stage: 2 * 4160 * 4 bytes * (weights, gradients, momentum) = 99840; 2 samples * 64 * 4 bytes = 512.
    const run::HostNeed one = need_of({});
    CHECK(one.state == 99840);
    CHECK(one.activations == 512);
    CHECK(one.data == 1000);
    const run::HostNeed replicas = need_of({.replicas = {2}});
    CHECK(replicas.state == 2 * 99840);
    CHECK(replicas.activations == 2 * 512);
    CHECK(replicas.data == one.data);
    const run::HostNeed stages = need_of({.cuts = {2}});
    CHECK(stages.state == 99840);
    CHECK(stages.activations == 2 * 512);
  }

  // Of two replicas each holds weights, gradients and half of the momentum: 2.5 times 33280 bytes.
  TEST_CASE("replicas that divide the optimizer's state hold a part of it each") {
    CHECK(need_of({.replicas = {2}, .shard = plan::Shard::optimizer}).state == 2 * 2.5 * 33280);
  }

  // Two stages on ranks 0 and 1: half the state; the data twice where both ranks are on this host.
  TEST_CASE("of several ranks those on this host count") {
    PlanSpec spec{.model = test::sample_profile(std::vector<double>(4, 1.0)).model, .cuts = {2}};
    const plan::Plan plan = make_plan(spec);
    const auto need = [&](bool other) {
      run::Placement placement = run::place_workers(plan, 0, 2);
      placement.on_host = {true, other};
      return run::least_host_memory(plan, resolve(plan.model), plan.devices, 1000, 3, placement);
    };
    CHECK(need(false).state == 99840 / 2);
    CHECK(need(false).data == 1000);
    CHECK(need(true).state == 99840);
    CHECK(need(true).data == 2000);
  }

  TEST_CASE("a synthetic sample takes 4 bytes a number") {
    CHECK(run::synthetic_sample_bytes(test::sample_profile(std::vector<double>(4, 1.0)).model) == 64 * 4);
  }

  TEST_CASE("what stands on a GPU is not the host's") {
    const run::HostNeed need = need_of({.replicas = {2}}, DeviceKind::cuda);
    CHECK(need.state == 0);
    CHECK(need.activations == 0);
    CHECK(need.data > 0);
  }

  TEST_CASE("a need above what is available names both and what to change") {
    constexpr std::int64_t kGi = std::int64_t{1} << 30;
    const double gi = static_cast<double>(kGi);
    CHECK(refusal({.data = 2 * gi, .state = gi, .activations = gi}, 4 * kGi) == "");
    CHECK(
        refusal({.data = 16 * gi, .state = gi, .activations = gi}, 4 * kGi) ==
        "the run needs at least 18 GiB of host memory (data 16 GiB, weights with gradients and optimizer state "
        "1 GiB, activations 1 GiB), 4 GiB are available; use fewer or smaller samples");
    CHECK(refusal({.data = gi, .state = 16 * gi, .activations = gi}, 4 * kGi)
              .ends_with("; use a smaller model or fewer replicas on this machine"));
    CHECK(refusal({.data = gi, .state = gi, .activations = 1e30}, 4 * kGi)
              .ends_with("; use smaller micro-batches"));
  }

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

  TEST_CASE("a stage of experts is not recorded: how many rows their products have depends on values") {
    ModelGraph graph = test::mlp(1);
    graph.layers[1] = {"mixture", "mixture_of_experts", {"fc0"}, {}, ""};
    graph.layers[1].attributes = {
        {"num_experts", std::int64_t{2}}, {"experts_per_token", std::int64_t{1}}, {"hidden", std::int64_t{3}}};
    graph.layers[2].inputs = {"mixture"};
    const plan::Plan plan = make_plan({.model = graph});
    CHECK(run::why_not_recorded(plan, resolve(plan.model), StageId{0}) ==
          "layer \"mixture\" sends positions to experts");
  }
}

}  // namespace host_memory_test
