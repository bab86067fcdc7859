// Three trainings for the sanitizers: what workers share while they hand over, reduce, evaluate and update.
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

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
}
