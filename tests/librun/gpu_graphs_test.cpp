// Passes that are recorded as CUDA graphs and replayed: the bits are those of passes that are not.
#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "tests/librun/gpu_plans.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_graphs_test {

using namespace pp;

namespace {

/// Four steps of eight samples, and one of the four that are left in the epoch.
run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 36;
  options.epochs = 1;
  options.learning_rate = 0.05;
  return options;
}

run::GraphCount graphs_of(const run::RunReport& report) {
  run::GraphCount all;
  for (const run::WorkerReport& worker : report.workers) all += worker.graphs.value_or(run::GraphCount{});
  return all;
}

/// The same weights and losses with and without graphs; gives what was recorded.
run::GraphCount check_equal(const PlanSpec& spec, run::RunOptions options = short_run()) {
  const plan::Plan plan = pp::test::plan_on_cuda(spec);
  const pp::test::Run without = pp::test::run_plan(plan, options);
  CHECK(graphs_of(without.report).recorded == 0);
  options.cuda_graphs = true;
  const pp::test::Run with = pp::test::run_plan(plan, options);
  CHECK(pp::test::first_difference(without.tensors, with.tensors) == "");
  CHECK(with.report.step_losses == without.report.step_losses);
  return graphs_of(with.report);
}

}  // namespace

TEST_SUITE("gpu/librun/graphs") {
  // A stage of 1f1b with M = 4 runs steps 1 to 3 on recordings, 4 micro-batches each; step 0 runs without, and
  // the last one, whose micro-batches are smaller. One stage has one micro-batch in flight: a recording for the
  // one that sets the sums of a step, and one for the others. Of two stages, the first has two in flight, of
  // which the first one's recording is free again when the third begins: two for the others.
  TEST_CASE("one stage and two, batch norm and a long skip: the bits are the same") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec{.model = pp::test::residual_net()};
    const run::GraphCount one = check_equal(spec);
    CHECK(one.recorded == 2);
    CHECK(one.replayed == 12);
    CHECK(one.bytes > Bytes(0));
    spec.cuts = {4};
    const run::GraphCount two = check_equal(spec);
    CHECK(two.recorded == 3 + 2);
    CHECK(two.replayed == 2 * 12);
  }

  TEST_CASE("schedules with split backwards and several stages per worker, and all in flight at once") {
    PP_NEEDS_CUDA(1);
    for (const std::string schedule : {"gpipe", "zb-h1", "interleaved", "zb-v", "dualpipe-v"}) {
      INFO(schedule);
      PlanSpec spec{.model = pp::test::residual_net(), .schedule = schedule};
      spec.cuts = {2, 4, 8};
      CHECK(check_equal(spec).replayed == 4 * 12);
    }
  }

  TEST_CASE("attention, tied weights, other optimizers and types") {
    PP_NEEDS_CUDA(1);
    PlanSpec text{.model = model::build_family(
                      "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0,tied=1")};
    CHECK(check_equal(text).replayed == 12);
    text.cuts = {3};
    text.optimizer = OptimizerName::adam;
    CHECK(check_equal(text).replayed == 24);
    run::RunOptions half = short_run();
    half.autocast = Autocast::bfloat16;
    CHECK(check_equal(text, half).replayed == 24);
    half.autocast = Autocast::float16;  // whose loss scale changes from step to step
    CHECK(check_equal({.model = pp::test::regression(), .cuts = {2}}, half).replayed == 24);
  }

  TEST_CASE("replicas, of which each has half of the micro-batches") {
    PP_NEEDS_CUDA(1);
    CHECK(check_equal({.model = pp::test::residual_net(), .replicas = {2}}).replayed == 12);
    PlanSpec both_ways{.model = pp::test::mlp(3), .cuts = {3}, .schedule = "chimera"};
    CHECK(check_equal(both_ways).replayed == 2 * 12);
  }

  TEST_CASE("layers that run again, accumulated mini-batches and limited norms") {
    PP_NEEDS_CUDA(1);
    PlanSpec spec{.model = pp::test::residual_net(), .cuts = {4}};
    const ModelGraph graph = resolve(spec.model).graph;
    spec.rerun_layers = {graph.layers[1].name, graph.layers[5].name};
    run::RunOptions options = short_run();
    options.accumulate = 2;
    options.clip_norm = 0.5;
    CHECK(check_equal(spec, options).replayed == 2 * 8);  // of the second update
  }

  TEST_CASE("whole forwards that run again and stages that draw numbers run without") {
    PP_NEEDS_CUDA(1);
    PlanSpec again{.model = pp::test::mlp(3), .cuts = {3}};
    again.recompute = {plan::Recompute::always};
    CHECK(check_equal(again).replayed == 0);
    again.recompute = {plan::Recompute::except_last};  // a stage's last micro-batch
    CHECK(check_equal(again).recorded == 2);
    const PlanSpec drops{.model = pp::test::dropout_mlp(), .cuts = {7}};
    CHECK(check_equal(drops).replayed == 12);  // the last layer
  }

  // The worker's peak has the recordings; what is replayed allocates its copies alone.
  TEST_CASE("recorded memory is the worker's, and inference in between leaves it alone") {
    PP_NEEDS_CUDA(1);
    run::RunOptions options = short_run();
    options.epochs = 2;
    PlanSpec spec{.model = pp::test::residual_net(), .cuts = {4}};
    CHECK(check_equal(spec, options).replayed == 2 * (12 + 16));
    options.cuda_graphs = true;
    const run::RunReport report = pp::test::run_plan(pp::test::plan_on_cuda(spec), options).report;
    for (const run::WorkerReport& worker : report.workers) {
      REQUIRE(worker.graphs);
      CHECK(worker.peak > worker.graphs->bytes + worker.weights + worker.gradients);
    }
  }
}

}  // namespace gpu_graphs_test
