#include "librun/setup/host_memory.h"

#include "libprofile/core/error.h"
#include "tests/apps/sample_profile.h"
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
  try {
    run::check_host_memory(need, Bytes(available));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    return error.what();
  }
  return "";
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
}

}  // namespace host_memory_test
