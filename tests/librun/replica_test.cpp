#include "librun/setup/make_setup.h"
#include "librun/worker/worker.h"
#include "tests/librun/jobs.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

#include <thread>

namespace replica_test {

using namespace pp;

namespace {

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(4);
  options.evaluate = false;
  return options;
}

// Runs the workers of a job and looks at every replica's weights, not only those that are saved.
struct Replicas {
  Replicas(const plan::Plan& plan, const run::RunOptions& options)
      : job(plan, options, run::make_setup(plan, options)) {
    test::command_all(job);
    for (const plan::Worker& worker : plan.workers)
      workers.push_back(std::make_unique<run::Worker>(job, worker.id));
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&worker] { worker->run(); });
    for (std::thread& thread : threads) thread.join();
  }
  bool failed() { return static_cast<bool>(job.coordinator.error()); }
  test::NamedTensors tensors(int worker, int stage) const {
    test::NamedTensors all;
    for (const run::Stage::LayerState& layer :
         workers[static_cast<std::size_t>(worker)]->stages().at(StageId{stage}).snapshot()) {
      all.insert(all.end(), layer.tensors.begin(), layer.tensors.end());
    }
    return all;
  }
  run::Job job;
  std::vector<std::unique_ptr<run::Worker>> workers;
};

}  // namespace

TEST_SUITE("librun/replica") {
  TEST_CASE(
      "row 2: data parallelism, replicas of the model with the same bits, which are one batch's to rounding") {
    PlanSpec spec{.model = test::mlp(2), .schedule = "data-parallel", .mini_batch = 12, .micro_batches = 1};
    const test::Trained expected = test::train_alone(make_plan(spec), short_run());
    spec.micro_batches = 3;  // 4 samples each
    spec.replicas = {3};
    const run::RunOptions options = short_run();
    const plan::Plan plan = make_plan(spec);
    Replicas replicas(plan, options);
    REQUIRE_FALSE(replicas.failed());
    CHECK(test::first_difference(replicas.tensors(0, 0), replicas.tensors(1, 0)) == "");
    CHECK(test::first_difference(replicas.tensors(0, 0), replicas.tensors(2, 0)) == "");
    CHECK(test::largest_difference(expected.tensors, replicas.tensors(0, 0)) < 1e-6);
  }

  TEST_CASE("all replicas of a stage hold bit-identical weights and running statistics") {
    const plan::Plan plan = make_plan(
        {.model = test::residual_net(), .cuts = {6}, .replicas = {3, 2}, .mini_batch = 12, .micro_batches = 6});
    const run::RunOptions options = short_run();
    Replicas replicas(plan, options);
    REQUIRE_FALSE(replicas.failed());
    CHECK(test::first_difference(replicas.tensors(0, 0), replicas.tensors(1, 0)) == "");
    CHECK(test::first_difference(replicas.tensors(0, 0), replicas.tensors(2, 0)) == "");
    CHECK(test::first_difference(replicas.tensors(3, 1), replicas.tensors(4, 1)) == "");
  }

  TEST_CASE("a replica without micro-batches adds zero") {
    // Three replicas, two micro-batches: worker 2 has nothing to run.
    PlanSpec spec{.model = test::dropout_mlp(), .mini_batch = 4, .micro_batches = 2};
    const test::Trained expected = test::train_alone(make_plan(spec), short_run());
    spec.replicas = {3};
    const run::RunOptions options = short_run();
    const plan::Plan plan = make_plan(spec);
    Replicas replicas(plan, options);
    CHECK(test::first_difference(replicas.tensors(0, 0), replicas.tensors(2, 0)) == "");
    CHECK(test::largest_difference(expected.tensors, replicas.tensors(2, 0)) < 1e-6);
  }

  TEST_CASE("two replicated runs give the same bits") {
    const plan::Plan plan = make_plan({.model = test::residual_net(), .cuts = {6}, .replicas = {2, 2}});
    const test::Run first = test::run_plan(plan, short_run()), second = test::run_plan(plan, short_run());
    CHECK(test::first_difference(first.tensors, second.tensors) == "");
    CHECK(first.report.step_losses == second.report.step_losses);
  }
}

}  // namespace replica_test
