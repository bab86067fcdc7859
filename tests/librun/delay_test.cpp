#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

using namespace pp;

namespace {

run::RunOptions two_epochs() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 48;  // 12 mini-batches of 4 in each epoch
  options.epochs = 2;
  options.learning_rate = 0.1;
  options.momentum = 0.9;
  options.evaluate = false;
  return options;
}

PlanSpec streamed(int layers, std::vector<int> cuts) {
  return {.model = test::mlp(layers),
          .cuts = std::move(cuts),
          .schedule = "pipedream",
          .mini_batch = 4,
          .micro_batches = 1,
          .dtype = DType::float64};
}

}  // namespace

TEST_SUITE("librun/delay") {
  TEST_CASE("four stages with stashing equal the delay recursion bit for bit over two epochs") {
    const plan::Plan plan = make_plan(streamed(4, {2, 4, 6}));
    const test::Trained expected = test::train_delayed(plan, two_epochs());
    const test::Run found = test::run_plan(plan, two_epochs());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
    REQUIRE(expected.losses.size() == 24);
  }

  TEST_CASE("stage s of four keeps 4-s mini-batches in flight and 4-s versions") {
    const test::Run found = test::run_plan(make_plan(streamed(4, {2, 4, 6})), two_epochs());
    for (int s = 0; s < 4; ++s) {
      CAPTURE(s);
      const run::WorkerReport& worker = found.report.workers[static_cast<std::size_t>(s)];
      CHECK(worker.peak_in_flight == 4 - s);
      CHECK(worker.peak_versions == 4 - s);
      CHECK(worker.versions == worker.weights * (3 - s));
    }
  }

  TEST_CASE("replicas 2-1: the recursion with the mean over each round") {
    PlanSpec spec = streamed(2, {2});
    spec.replicas = {2, 1};
    const plan::Plan plan = make_plan(spec);
    const test::Trained expected = test::train_delayed(plan, two_epochs());
    const test::Run found = test::run_plan(plan, two_epochs());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
  }

  TEST_CASE("one stage is plain sgd") {
    PlanSpec spec = streamed(2, {});
    const test::Run streamed_run = test::run_plan(make_plan(spec), two_epochs());
    spec.schedule = "gpipe";
    const test::Run plain = test::run_plan(make_plan(spec), two_epochs());
    CHECK(test::first_difference(plain.tensors, streamed_run.tensors) == "");
  }
}
