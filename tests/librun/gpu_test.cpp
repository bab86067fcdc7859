// Plans on CUDA devices: what equality_test.cpp and replica_test.cpp say of CPU devices. One device is enough:
// its workers have a stream each.
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

using namespace pp;

namespace {

run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 3;
  options.learning_rate = 0.05;
  return options;
}

/// All workers on cuda:0, or worker w on cuda:w.
enum class Spread { one_device, device_each };

::test::Run run_on_cuda(const PlanSpec& spec, Spread spread = Spread::one_device) {
  plan::Plan plan = make_plan(spec);
  for (Device& device : plan.devices) {
    device.kind = DeviceKind::cuda;
    if (spread == Spread::one_device) device.index = 0;
  }
  return ::test::run_plan(plan, short_run());
}

/// The same bits in weights, running statistics and losses, whole and cut.
void check_cuts(PlanSpec spec, const std::vector<std::vector<int>>& cuts, Spread spread = Spread::one_device) {
  spec.cuts = {};
  const ::test::Run whole = run_on_cuda(spec);
  for (const std::vector<int>& cut : cuts) {
    spec.cuts = cut;
    const ::test::Run found = run_on_cuda(spec, spread);
    CHECK(::test::first_difference(whole.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == whole.report.step_losses);
  }
}

PlanSpec residual(const std::string& schedule) {
  return {.model = ::test::residual_net(), .schedule = schedule};
}

}  // namespace

TEST_SUITE("gpu/librun") {
  TEST_CASE("two workers on one device give the bits of one stage") {
    PP_NEEDS_CUDA(1);
    for (const char* schedule : {"gpipe", "1f1b"}) check_cuts(residual(schedule), {{4}, {3, 8}});
    check_cuts({.model = model::build_family(
                    "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2")},
               {{2}, {1, 3}});
  }

  TEST_CASE("split backwards and several stages per worker give the bits of one stage") {
    PP_NEEDS_CUDA(1);
    const ::test::Run whole = run_on_cuda(residual("1f1b"));
    for (const std::string schedule : {"zb-h1", "zb-h2", "interleaved", "zb-v", "dualpipe-v"}) {
      INFO(schedule);
      PlanSpec spec = residual(schedule);
      spec.cuts = {2, 4, 8};
      CHECK(::test::first_difference(whole.tensors, run_on_cuda(spec).tensors) == "");
    }
  }

  TEST_CASE("recomputation and copies of tied weights give the bits of one stage") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec{.model = model::build_family(
                      "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2,tied=1")};
    const ::test::Run whole = run_on_cuda(spec);
    spec.cuts = {3};
    spec.recompute = {plan::Recompute::always};
    CHECK(::test::first_difference(whole.tensors, run_on_cuda(spec).tensors) == "");
  }

  TEST_CASE("what keeps several versions or copies of weights is that of the CPU to rounding") {
    PP_NEEDS_CUDA(1);
    for (const std::string schedule : {"pipedream", "chimera"}) {
      INFO(schedule);
      PlanSpec spec{.model = ::test::mlp(3), .cuts = {3}, .schedule = schedule};
      if (schedule == "pipedream") spec.micro_batches = 1;
      spec.dtype = DType::float64;
      const ::test::Run cpu = ::test::run_plan(make_plan(spec), short_run());
      CHECK(::test::largest_difference(cpu.tensors, run_on_cuda(spec).tensors) < 1e-10);
    }
  }

  TEST_CASE("an exact sum in float64 is that of the CPU to rounding") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec{.model = ::test::mlp(3), .cuts = {3}};
    spec.dtype = DType::float64;
    const ::test::Run cpu = ::test::run_plan(make_plan(spec), short_run());
    CHECK(::test::largest_difference(cpu.tensors, run_on_cuda(spec).tensors) < 1e-10);
  }

  TEST_CASE("replicas on one device give the single device's weights to rounding") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec{.model = ::test::mlp(3)};
    spec.dtype = DType::float64;
    const ::test::Run whole = run_on_cuda(spec);
    spec.replicas = {2};
    CHECK(::test::largest_difference(whole.tensors, run_on_cuda(spec).tensors) < 1e-10);
  }

  TEST_CASE("the report has times, losses and bytes of each worker") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec = residual("1f1b");
    spec.cuts = {4};
    const ::test::Run found = run_on_cuda(spec);
    REQUIRE(found.report.workers.size() == 2);
    for (const run::WorkerReport& worker : found.report.workers) {
      CHECK(worker.peak > Bytes(0));
      CHECK(worker.weights > Bytes(0));
    }
    CHECK(found.report.step_losses.size() == 3);
  }

  TEST_CASE("stages on two devices give the bits of one stage") {
    PP_NEEDS_CUDA(2);
    check_cuts(residual("1f1b"), {{4}, {9}}, Spread::device_each);
  }
}
