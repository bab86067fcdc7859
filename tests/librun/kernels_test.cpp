// Plans whose profile says which kernels run their products and convolutions: all of them, on threads and on
// ranks, still give the bits of one stage. The choices here are not the measured ones but every other one of
// each task, so that no machine decides what is tested.
#include <string>
#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/device/process.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/model/families/families.h"
#include "librun/infer.h"
#include "tests/librun/folder.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/silent_profiling.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/called_operations.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace kernels_test {

using namespace pp;
using pp::test::NamedTensors;

namespace {

constexpr int kSamples = 2;  // of a micro-batch

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(3, 16);
  options.learning_rate = 0.02;
  return options;
}

/// All operations of the model that have two kernels, each with the one that its neighbour in the list has not.
std::vector<KernelChoice> alternating(const ModelGraph& model) {
  profile::prepare_process();
  test::SilentProfiling observer;
  const Profile profile = profile::profile_model(model,
                                                 {.micro_batch_sizes = {kSamples},
                                                  .precision = 0.5,
                                                  .budget_per_size = Seconds(0.01),
                                                  .min_time = Seconds(0.001)},
                                                 observer);
  std::vector<KernelChoice> choices = profile.kernels;
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i].kernel = kernels_of(choices[i].key.task)[i % 2];
  return effective(choices);
}

plan::Plan plan_with(const PlanSpec& spec, const std::vector<KernelChoice>& kernels) {
  plan::Plan plan = make_plan(spec);
  plan.training.kernels = kernels;
  return plan;
}

NamedTensors outputs_of(const plan::Plan& plan) {
  const TestFolder folder;
  run::InferOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 6;
  options.random_weights = true;
  options.outputs = folder.path() / "outputs.safetensors";
  test::SilentInference observer;
  run::infer(plan, options, observer);
  return run::read_weights(options.outputs);
}

/// A model, boundaries of two stages and of four.
struct Case {
  std::string model;
  int half;
  std::vector<int> quarters;
};
const std::vector<Case> kCases{
    {"mlp:inputs=64,width=96,layers=4,classes=10", 4, {2, 4, 6}},
    {"transformer:layers=2,width=128,heads=2,vocabulary=40,sequence=16,dropout=0.1", 6, {3, 6, 9}},
    {"llama:layers=2,width=128,heads=4,kv_heads=2,head_width=32,hidden=256,vocabulary=40,sequence=16",
     13,
     {6, 13, 20}},
    {"lenet5", 4, {2, 4, 8}},
    {"resnet18:image=32,classes=10,width=8", 20, {10, 20, 40}},
};

}  // namespace

TEST_SUITE("librun/kernels") {
  TEST_CASE("chosen kernels: every cut, schedule and recomputation has the bits of one stage") {
    for (const Case& of : kCases) {
      CAPTURE(of.model);
      PlanSpec spec{.model = model::build_family(of.model), .mini_batch = 4 * kSamples};
      const std::vector<KernelChoice> kernels = alternating(spec.model);
      REQUIRE(kernels.size() >= 2);
      const test::TorchCalls calls(test::kOneDnnProduct);
      test::run_plan(make_plan(spec), short_run());
      CHECK(calls.count() == 0);
      const test::Run whole = test::run_plan(plan_with(spec, kernels), short_run());
      CHECK(calls.count() > 0);
      const auto check = [&](const PlanSpec& other) {
        CAPTURE(other.schedule);
        CAPTURE(other.cuts);
        const test::Run found = test::run_plan(plan_with(other, kernels), short_run());
        CHECK(test::first_difference(whole.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == whole.report.step_losses);
      };
      for (const std::string schedule : {"1f1b", "gpipe", "zb-h1", "zb-h2"}) {
        spec.schedule = schedule;
        spec.cuts = {of.half};
        check(spec);
      }
      for (const std::string schedule : {"1f1b", "interleaved", "zb-v", "dualpipe-v"}) {
        spec.schedule = schedule;
        spec.cuts = of.quarters;
        check(spec);
      }
      spec.schedule = "1f1b";
      spec.recompute = {plan::Recompute::always};
      check(spec);
    }
  }

  TEST_CASE("chosen kernels: inference by any cut, and replicas on ranks, have the bits of theirs on threads") {
    for (const Case& of : kCases) {
      CAPTURE(of.model);
      PlanSpec spec{.model = model::build_family(of.model), .mini_batch = 4 * kSamples};
      const std::vector<KernelChoice> kernels = alternating(spec.model);
      const NamedTensors expected = outputs_of(plan_with(spec, kernels));
      spec.cuts = {of.half};
      CHECK(test::first_difference(expected, outputs_of(plan_with(spec, kernels))) == "");
      spec.replicas = {2, 2};
      const plan::Plan plan = plan_with(spec, kernels);
      CHECK(test::first_difference(test::run_plan(plan, short_run()).tensors,
                                   test::run_on(4, plan, short_run()).tensors) == "");
    }
  }
}

}  // namespace kernels_test
