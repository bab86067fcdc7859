// Three trainings and two inferences for the sanitizers: what workers share while they hand over, reduce,
// evaluate and update, and what the driver of an inference shares with them.
#include "libprofile/model/families/families.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/librun/folder.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace pipelines_test {

using namespace pp;

namespace {

run::RunOptions two_epochs() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 48;
  options.epochs = 2;
  options.learning_rate = 0.05;
  options.trace = true;
  return options;
}

}  // namespace

TEST_SUITE("librun/pipelines") {
  TEST_CASE("three stages with a cut right before a residual sum equal the single device bit for bit") {
    // The sum's two gradients are one tensor; stage 2 sends it to stages 1 and 0.
    PlanSpec spec{.model = test::skip_mlp(), .cuts = {2, 4}};
    const test::Trained expected = test::train_alone(make_plan(spec), two_epochs());
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
      CAPTURE(schedule);
      spec.schedule = schedule;
      const test::Run found = test::run_plan(make_plan(spec), two_epochs());
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    }
  }

  TEST_CASE("an output with two consumer stages equals the single device bit for bit") {
    // relu0 of stage 0 is read by conv1 in stage 1, by the sum and the concat in stage 2.
    PlanSpec spec{.model = test::residual_net(), .cuts = {3, 8}};
    const test::Trained expected = test::train_alone(make_plan(spec), two_epochs());
    const test::Run found = test::run_plan(make_plan(spec), two_epochs());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
  }

  TEST_CASE("a stream with replicas equals the delay recursion bit for bit") {
    const plan::Plan plan = make_plan({.model = test::mlp(2),
                                       .cuts = {2},
                                       .replicas = {2, 1},
                                       .schedule = "pipedream",
                                       .mini_batch = 4,
                                       .micro_batches = 1,
                                       .dtype = DType::float64});
    const test::Trained expected = test::train_delayed(plan, two_epochs());
    CHECK(test::first_difference(expected.tensors, test::run_plan(plan, two_epochs()).tensors) == "");
  }

  TEST_CASE("outputs and sequences are the same on one worker and on four") {
    const ModelGraph model =
        model::build_family("transformer:layers=1,width=8,heads=2,vocabulary=19,sequence=8");
    const TestFolder folder;
    run::InferOptions options;
    options.data = "synthetic";
    options.synthetic_samples = 9;
    options.random_weights = true;
    options.micro_batch = 2;
    options.outputs = folder.path() / "outputs";
    const auto infer = [&](const plan::Plan& plan) {
      test::SilentInference observer;
      run::infer(plan, options, observer);
      return run::read_weights(options.outputs);
    };
    const plan::Plan one = make_plan({.model = model});
    const plan::Plan four = make_plan({.model = model, .cuts = {4, 8}, .replicas = {1, 2, 1}});
    CHECK(test::first_difference(infer(one), infer(four)) == "");
    options.generation = run::GenerationOptions{.new_tokens = 6, .prompt_length = 3, .temperature = 1};
    CHECK(test::first_difference(infer(one), infer(four)) == "");
  }
}

}  // namespace pipelines_test
