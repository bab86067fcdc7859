// Replicas: the same bits on all, and whole pipelines side by side as as many replicas of each stage.
#include "librun/setup/make_setup.h"

#include <thread>

#include "libprofile/model/families/families.h"
#include "librun/worker/worker.h"
#include "tests/librun/jobs.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

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

struct Kind {
  const char* schedule;
  int places;
  int chunks;  ///< stages per worker
};

const std::vector<Kind> kKinds{{"interleaved", 2, 2}, {"interleaved", 1, 3}, {"looped-bfs", 2, 2},
                               {"zb-h1", 2, 1},       {"zb-h1", 3, 1},       {"zb-h2", 2, 1},
                               {"zb-v", 2, 2},        {"dualpipe-v", 2, 2}};

std::vector<int> first_cuts(int stages) {
  std::vector<int> cuts;
  for (int s = 1; s < stages; ++s) cuts.push_back(s);
  return cuts;
}

PlanSpec spec_of(const Kind& kind, int pipelines, int micro_batches, const ModelGraph& model) {
  return {.model = model,
          .cuts = first_cuts(kind.places * kind.chunks),
          .replicas = std::vector<int>(static_cast<std::size_t>(kind.places), pipelines),
          .schedule = kind.schedule,
          .mini_batch = 12,
          .micro_batches = micro_batches,
          .chunks = kind.chunks};
}

/// 1F1B on as many replicas of the same stages; of a schedule whose backwards run from the last micro-batch to
/// the first, GPipe in that order.
PlanSpec plain(PlanSpec spec, int pipelines) {
  spec.replicas.assign(spec.cuts.size() + 1, pipelines);
  spec.schedule = spec.schedule == "looped-bfs" ? "gpipe-reverse" : "1f1b";
  spec.chunks = 0;
  return spec;
}

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

  TEST_CASE("pipelines side by side have the bits of as many replicas of each stage") {
    const ModelGraph model = model::build_family("mlp:inputs=12,width=16,layers=4,classes=4,dropout=0.3");
    int compared = 0;
    for (const Kind& kind : kKinds) {
      for (const int pipelines : {2, 3}) {
        for (const int share : {2, 4}) {
          const std::string name(kind.schedule);
          CAPTURE(name);
          CAPTURE(kind.places);
          CAPTURE(pipelines);
          CAPTURE(share);
          const PlanSpec spec = spec_of(kind, pipelines, pipelines * share, model);
          plan::Plan plan;
          try {
            plan = make_plan(spec);
          } catch (const Error&) {
            continue;  // micro-batches that the schedule does not take
          }
          plan::check_plan(plan);
          const pp::test::Run found = pp::test::run_plan(plan, short_run());
          const pp::test::Run expected = pp::test::run_plan(make_plan(plain(spec, pipelines)), short_run());
          CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
          CHECK(found.report.step_losses == expected.report.step_losses);
          ++compared;
        }
      }
    }
    CHECK(compared > 20);
  }
}

}  // namespace replica_test
