#include "libprofile/core/file.h"
#include "tests/librun/folder.h"
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

  TEST_CASE("a partial last mini-batch in a round of replicas counts with its samples") {
    // 46 samples: 12 mini-batches, the last one of 2. With replicas 2-1 stage 0 weighs its last round 4:2.
    PlanSpec spec = streamed(2, {2});
    spec.replicas = {2, 1};
    run::RunOptions options = two_epochs();
    options.synthetic_samples = 46;
    const test::Trained expected = test::train_delayed(make_plan(spec), options);
    const test::Run found = test::run_plan(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
  }

  TEST_CASE("one round of two replicas, 4 and 2 samples, is one step on the six samples together") {
    PlanSpec spec = streamed(2, {});
    spec.replicas = {2};
    run::RunOptions options = two_epochs();
    options.synthetic_samples = 6;
    options.epochs = 1;
    options.shuffle = false;
    const test::Run found = test::run_plan(make_plan(spec), options);
    spec.replicas = {};
    spec.schedule = "gpipe";
    spec.mini_batch = 6;
    const test::Trained expected = test::train_alone(make_plan(spec), options);
    CHECK(test::largest_difference(expected.tensors, found.tensors) < 1e-12);  // float64
  }

  TEST_CASE("an interrupted stream applies every gradient that it has computed, wherever W and I stand") {
    // One stage whose body computes the weight gradient of one mini-batch before the input gradient of the
    // next.
    plan::Plan plan = make_plan(streamed(2, {}));
    plan.workers[0].program.stream =
        plan::Stream{plan::parse_program("F0.0 I0.0"), plan::parse_program("F0.1 W0.0 I0.1 U0"), /*period=*/1};
    const TestFolder folder;
    run::RunOptions options = two_epochs();
    options.save_weights = folder.path() / "w.safetensors";
    test::SilentObserver observer;
    const run::RunReport report = run::run(plan, options, observer, [&] { return observer.steps.size() >= 3; });
    CHECK(report.exit_reason == "interrupted");
    REQUIRE(report.steps < 12);
    const auto interrupted = read_file(options.save_weights);
    options.epochs.reset();
    options.steps = report.steps;
    run::run(plan, options, observer);
    CHECK(read_file(options.save_weights) == interrupted);
  }

  TEST_CASE("one stage is plain sgd") {
    PlanSpec spec = streamed(2, {});
    const test::Run streamed_run = test::run_plan(make_plan(spec), two_epochs());
    spec.schedule = "gpipe";
    const test::Run plain = test::run_plan(make_plan(spec), two_epochs());
    CHECK(test::first_difference(plain.tensors, streamed_run.tensors) == "");
  }
}
