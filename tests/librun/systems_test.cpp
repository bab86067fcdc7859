// What pipeline systems promise of their trainings: of the table of 35 statements that
// tests/libplan/systems_test.cpp tests by lists and arithmetic, the rows that need a training, each case named
// after its row. That gradients are those of one device: promises_test.cpp, with rows 19 and 30 to 34. Row 2
// stands in replica_test.cpp, 3 and 26 to 28 in server/served_test.cpp, 14 to 17, 22 and 23 in delay_test.cpp,
// 21 in harmony_test.cpp, 24 in partime_test.cpp, 25 in infer/.
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <functional>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "librun/data/synthetic.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/silent_profiling.h"
#include "tests/librun/synthetic_options.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace systems_test {

using namespace pp;
using plan::Recompute;

namespace {

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(3);
  options.evaluate = false;
  return options;
}

/// Batch norm with skips; cuts for four stages.
test::Run run_four_stages(const std::string& schedule, int micro_batches, std::vector<int> cuts = {2, 4, 7}) {
  return test::run_plan(make_plan({.model = test::residual_net(),
                                   .cuts = std::move(cuts),
                                   .schedule = schedule,
                                   .micro_batches = micro_batches}),
                        short_run());
}

std::vector<int> peaks_in_flight(const test::Run& run) {
  std::vector<int> peaks;
  for (const run::WorkerReport& worker : run.report.workers) peaks.push_back(worker.peak_in_flight);
  return peaks;
}

/// The first of a few measurements that is near what is expected, else the last: other programs run beside
/// them.
double near(double expected, double tolerance, const std::function<double()>& measure) {
  double found = measure();
  for (int more = 4; more > 0 && std::abs(found - expected) >= tolerance; --more) found = measure();
  return found;
}

}  // namespace

TEST_SUITE("librun/systems") {
  TEST_CASE("row 4: GPipe has all M micro-batches in flight") {
    CHECK(peaks_in_flight(run_four_stages("gpipe", 4)) == std::vector{4, 4, 4, 4});
  }

  TEST_CASE("row 18: PipeDream-Flush has min(K-s, M) in flight") {
    CHECK(peaks_in_flight(run_four_stages("1f1b", 4)) == std::vector{4, 3, 2, 1});
    CHECK(peaks_in_flight(run_four_stages("1f1b", 2)) == std::vector{2, 2, 2, 1});
  }

  TEST_CASE("row 5: re-materialisation holds less") {
    profile::install_memory_meter();
    std::vector<Bytes> held;
    for (const Recompute mode : {Recompute::always, Recompute::except_last, Recompute::never}) {
      const PlanSpec spec{
          .model = test::dropout_mlp(), .cuts = {3, 6}, .schedule = "gpipe", .recompute = {mode}};
      held.push_back(test::run_plan(make_plan(spec), short_run()).report.workers[0].saved);
    }
    CHECK(held[0] <= held[1]);
    CHECK(held[1] <= held[2]);
    CHECK(held[0] < held[2]);
  }

  TEST_CASE("row 7: a skip over stages crosses from its stash to its pops alone") {
    // relu0 of stage 0 is read in stages 1, 2 and 3. It, relu1 of stage 1 and relu3 of stage 2 are 4x6x6 floats
    // a sample, 8 samples a step; each goes once to each of its readers, and a gradient comes back: stage 0
    // sends relu0 to 1, 2, 3; stage 1 relu1 to 2 and a gradient to 0; stage 2 relu3 to 3 and gradients to 1 and
    // 0; stage 3 gradients to 2 and 0.
    std::vector<std::int64_t> messages;
    for (const run::WorkerReport& worker : run_four_stages("1f1b", 4, {3, 6, 12}).report.workers) {
      CHECK(worker.sent_per_step.value % (8 * 4 * 6 * 6 * 4) == 0);
      messages.push_back(worker.sent_per_step.value / (8 * 4 * 6 * 6 * 4));
    }
    CHECK(messages == std::vector<std::int64_t>{3, 2, 3, 2});
  }

  TEST_CASE("row 8: deferred batch norm's statistics are those of the whole mini-batch, also when run again") {
    ModelGraph model;
    model.name = "norm_first";
    model.inputs = {{"x", {{3, 4, 4}, DType::float32}}};
    model.targets = {{"y", {{}, DType::int64}}};
    model.layers = {{"norm", "batch_norm2d", {"x"}, {}, ""},
                    {"flat", "flatten", {"norm"}, {}, ""},
                    {"head", "linear", {"flat"}, {{"out_features", std::int64_t{3}}}, ""}};
    model.outputs = {"head"};
    model.loss = LossSpec{"cross_entropy", {"head", "y"}, {}};
    PlanSpec spec{.model = model, .cuts = {1}};
    const run::RunOptions options = short_run();
    const run::MemoryDataset data =
        run::make_synthetic(resolve(model), 24, options.seed, run::Subset::training, DType::float32);
    const auto order = run::epoch_order(24, options.seed, 0, options.shuffle);
    at::Tensor mean = at::zeros({3}), variance = at::ones({3});
    for (std::size_t step = 0; step < 3; ++step) {
      const at::Tensor x = data.rows({TensorSource::Kind::input, 0, 0}, std::span(order).subspan(8 * step, 8));
      mean = 0.9 * mean + 0.1 * x.mean({0, 2, 3});
      variance = 0.9 * variance + 0.1 * x.var({0, 2, 3}, /*unbiased=*/true);
    }
    for (const Recompute mode : {Recompute::never, Recompute::always}) {
      spec.recompute = {mode};
      int found = 0;
      for (const auto& [name, tensor] : test::run_plan(make_plan(spec), options).tensors) {
        if (name == "norm.running_mean") {
          ++found;
          CHECK(tensor.allclose(mean, 0, 1e-5));
        }
        if (name == "norm.running_var") {
          ++found;
          CHECK(tensor.allclose(variance, 0, 1e-5));
        }
      }
      CHECK(found == 2);
    }
  }
}

TEST_SUITE("librun/systems/times") {
  TEST_CASE("row 1: while one worker of naive model parallelism computes, all others wait") {
    // Layers of about a millisecond, so that handing over takes no share of the step.
    PlanSpec spec{.model = model::build_family("mlp:inputs=256,width=256,layers=6,classes=256"),
                  .schedule = "naive",
                  .mini_batch = 1024,
                  .micro_batches = 1};
    run::RunOptions options = short_run();
    options.synthetic_samples = spec.mini_batch;
    options.steps = 12;
    for (const std::vector<int>& cuts : {std::vector{5}, {4, 8}}) {
      spec.cuts = cuts;
      const double k = static_cast<double>(cuts.size()) + 1;
      CAPTURE(k);
      const double bubble = near(
          (k - 1) / k, 0.05, [&] { return test::run_plan(make_plan(spec), options).report.bubble_fraction; });
      CHECK(std::abs(bubble - (k - 1) / k) < 0.05);
    }
  }

  TEST_CASE("row 11: a profile has each layer's times and bytes, which add up to what a training takes") {
    // Linears of 64 -> 512, 512 -> 512 and 512 -> 10, a relu behind each of the first two; 256 samples of
    // floats. A linear keeps its input for the backward, which is what the relu before it has kept already.
    const ModelGraph model = model::build_family("mlp:inputs=64,width=512,layers=3,classes=10");
    profile::prepare_process();
    test::SilentProfiling observer;
    struct Row {
      std::int64_t parameters, output, saved;
    };
    constexpr std::int64_t kFloats = 4, kSamples = 256;
    const std::vector<Row> rows{{64 * 512 + 512, 512, 64},
                                {0, 512, 512},
                                {512 * 512 + 512, 512, 0},
                                {0, 512, 512},
                                {512 * 10 + 10, 10, 0}};
    run::RunOptions options = short_run();
    options.synthetic_samples = kSamples * 20;
    options.steps = 20;
    plan::Plan plan = make_plan({.model = model, .mini_batch = kSamples, .micro_batches = 1});
    const double ratio = near(1, 0.2, [&] {
      const Profile profile = profile::profile_model(model,
                                                     {.micro_batch_sizes = {kSamples},
                                                      .precision = 0.05,
                                                      .budget_per_size = Seconds(0.5),
                                                      .min_time = Seconds(0.1)},
                                                     observer);
      REQUIRE(profile.layers.size() == rows.size());
      Seconds sum = profile.loss->points[0].forward.median + profile.loss->points[0].backward.median;
      for (std::size_t l = 0; l < rows.size(); ++l) {
        const LayerProfile& layer = profile.layers[l];
        const LayerPoint& point = layer.points[0];
        CAPTURE(layer.name);
        CHECK(layer.parameters == Bytes(kFloats * rows[l].parameters));
        CHECK(point.output == Bytes(kFloats * kSamples * rows[l].output));
        CHECK(point.saved == Bytes(kFloats * kSamples * rows[l].saved));
        CHECK(point.forward.median.count() > 0);
        CHECK(point.backward.median.count() > 0);
        sum += point.forward.median + point.backward.median;
      }
      plan.training.kernels = effective(profile.kernels);  // as the planner does
      const run::RunReport report = test::run_plan(plan, options).report;
      Seconds measured{};  // forward and backward of the whole model
      for (const run::OpTime& time : report.op_times) {
        if (time.kind != plan::OpKind::update) measured += time.median;
      }
      return sum / measured;
    });
    CHECK(std::abs(ratio - 1) < 0.2);
  }
}

}  // namespace systems_test
