// PARTIME: a frame enters at each clock step, all stages update in every step (schedules of libplan: clocked).
#include <ATen/CPUGeneratorImpl.h>

#include <numeric>

#include "librun/data/synthetic.h"
#include "librun/wiring/wiring.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/models.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace partime_test {

using namespace pp;

namespace {

plan::Plan frames_plan(ModelGraph model, std::vector<int> cuts, DType dtype, int per_frame = 1) {
  return make_plan({.model = std::move(model),
                    .cuts = std::move(cuts),
                    .schedule = "partime",
                    .mini_batch = per_frame,
                    .micro_batches = 1,
                    .dtype = dtype});
}

run::RunOptions frames_run(int frames) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = frames;
  options.synthetic_drift = 0.002;
  options.epochs = 1;
  options.learning_rate = 0.02;
  options.optimizer["momentum"] = 0;
  options.evaluate = false;
  return options;
}

struct ClockedStage {
  model::Segment segment;
  std::vector<std::vector<at::Tensor>> weights;
  std::unique_ptr<model::Optimizer> optimizer;
  at::Tensor output, input_gradient;  // of the last step; undefined: there was none
};

// The recursion, a step at a time: x_s(t) = y_{s-1}(t-1), and the gradient of y_s at step t is what stage s+1
// had for its input at step t-1, whatever frame that was.
struct Clocked {
  Clocked(const plan::Plan& the_plan, const run::RunOptions& options)
      : plan(the_plan),
        model(plan, options),
        data(run::make_synthetic(model.resolved(), options.synthetic_samples, options.seed,
                                 run::Subset::training, plan.training.dtype, options.synthetic_drift)),
        generator(at::make_generator<at::CPUGeneratorImpl>(0)),
        rate(options.learning_rate),
        all(model.initial_weights()) {
    auto segments = run::make_segments(plan, model.resolved());
    for (model::Segment& segment : segments) {
      ClockedStage& stage =
          stages.emplace_back(ClockedStage{std::move(segment), {}, test::optimizer_of(plan, options), {}, {}});
      for (const int layer : stage.segment.layers())
        stage.weights.push_back(all[static_cast<std::size_t>(layer)]);
    }
  }

  test::Trained train(int frames, int epochs = 1) {
    test::Trained result;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (ClockedStage& stage : stages) stage.output = stage.input_gradient = at::Tensor();
      const int last = static_cast<int>(stages.size()) - 1;
      for (int t = 0; t < frames + last; ++t) {
        std::vector<at::Tensor> outputs, gradients;  // of the step before
        for (const ClockedStage& stage : stages) {
          outputs.push_back(stage.output);
          gradients.push_back(stage.input_gradient);
        }
        for (int s = 0; s <= last; ++s) {
          if (const int frame = t - s; frame < 0 || frame >= frames) {
            stages[static_cast<std::size_t>(s)].input_gradient.reset();
            continue;
          }
          const auto place = static_cast<std::size_t>(s);
          step(stages[place], t - s, s == 0 ? at::Tensor() : outputs[place - 1],
               s == last ? at::Tensor() : gradients[place + 1], s == last, result.losses);
        }
      }
    }
    result.tensors = model.named(all, model.initial_buffers());
    return result;
  }

  void step(ClockedStage& stage, std::int64_t frame, const at::Tensor& input, const at::Tensor& gradient,
            bool last, std::vector<double>& losses) {
    const std::vector<std::int64_t> rows{frame};
    model::Tensors inputs;
    for (const TensorSource& source : stage.segment.inputs())
      inputs.push_back(source.kind == TensorSource::Kind::layer ? input : data.rows(source, rows));
    const auto weights = std::make_shared<model::Weights>();
    for (const auto& layer : stage.weights) {
      auto& leaves = weights->layers.emplace_back();
      for (const at::Tensor& tensor : layer) leaves.push_back(tensor.detach().requires_grad_());
    }
    model::PassContext context;
    context.generator = &generator;
    context.dtype = model::scalar_type(plan.training.dtype);
    const std::vector<std::vector<at::Tensor>> buffers(stage.weights.size());
    context.buffers = buffers;
    model::Pass pass = stage.segment.forward(weights, inputs, context);
    if (!last) stage.output = pass.outputs.front();
    if (last) losses.push_back(pass.loss.item<double>());
    stage.input_gradient.reset();
    if (!last && !gradient.defined()) return;
    model::Gradients sums = stage.segment.empty_gradients();
    std::vector<model::Tensors> arrived(stage.segment.outputs().size());
    if (!last) arrived.front() = {gradient};
    const model::Tensors back = stage.segment.backward(pass, arrived, 1, sums);
    for (std::size_t i = 0; i < back.size(); ++i) {
      if (back[i].defined()) stage.input_gradient = back[i];
    }
    for (std::size_t l = 0; l < stage.weights.size(); ++l)
      if (!stage.weights[l].empty()) stage.optimizer->step(stage.weights[l], sums.layers[l], rate);
  }

  const plan::Plan& plan;
  test::WholeModel model;
  run::MemoryDataset data;
  at::Generator generator;
  double rate;
  test::LayerTensors all;
  std::vector<ClockedStage> stages;
};

std::string refusal(const plan::Plan& plan, const run::RunOptions& options) {
  return pp::test::error_of([&] { run::check(plan, options); });
}

}  // namespace

TEST_SUITE("librun/partime") {
  // A gradient of the first stage needs seven frames to come back.
  TEST_CASE("row 24: PARTIME, four stages and 1 to 50 frames: every bit of the recursion, in both types") {
    for (const auto& [dtype, frames] : {std::pair{DType::float32, 50},
                                        {DType::float64, 50},
                                        {DType::float32, 1},
                                        {DType::float32, 3},
                                        {DType::float32, 5},
                                        {DType::float32, 7}}) {
      const plan::Plan plan = frames_plan(test::mlp(3), {2, 4, 6}, dtype);
      const run::RunOptions options = frames_run(frames);
      const test::Trained expected = Clocked(plan, options).train(frames);
      const test::Run found = test::run_plan(plan, options);
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == expected.losses);
    }
  }

  TEST_CASE("row 24: one stage is online SGD: a step for each frame, in the order of the data") {
    const plan::Plan plan = frames_plan(test::mlp(2), {}, DType::float32);
    run::RunOptions options = frames_run(30);
    options.synthetic_drift = 0;
    options.optimizer["momentum"] = 0.9;
    const test::Run found = test::run_plan(plan, options);
    options.shuffle = false;
    const test::Trained expected = test::train_alone(plan, options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
  }

  TEST_CASE(
      "row 24: the output of a frame is there when N-1 others have entered; period and latency are measured") {
    for (const auto& cuts : {std::vector<int>{}, {3}, {2, 4, 6}}) {
      const int stages = static_cast<int>(cuts.size()) + 1;
      const plan::Plan plan = frames_plan(test::mlp(3), cuts, DType::float32);
      const std::optional<run::FramesReport> frames = test::run_plan(plan, frames_run(60)).report.frames;
      REQUIRE(frames.has_value());
      CHECK(frames->delay <= stages - 1);
      if (stages > 1) CHECK(frames->delay >= 1);
      CHECK(frames->period.count() > 0);
      CHECK(frames->latency.count() > 0);
    }
    CHECK_FALSE(test::run_plan(make_plan({.model = test::mlp(3), .cuts = {3}}), frames_run(16)).report.frames);
  }

  TEST_CASE("a stream drains at the end of an epoch and begins anew; one that was cut goes on") {
    const plan::Plan plan = frames_plan(test::mlp(2), {1, 3}, DType::float32);
    run::RunOptions options = frames_run(9);
    options.epochs = 3;
    const test::Trained expected = Clocked(plan, options).train(9, 3);
    CHECK(test::first_difference(expected.tensors, test::run_plan(plan, options).tensors) == "");
    options.epochs.reset();
    options.checkpoint_steps = 9;
    CHECK(test::first_difference(expected.tensors, test::run_parts({{plan, 9}, {plan, 27}}, options).tensors) ==
          "");
  }

  TEST_CASE("a stream whose rule drifts is followed") {
    const plan::Plan plan = frames_plan(test::mlp(1), {2}, DType::float32);
    run::RunOptions options = frames_run(2000);
    options.synthetic_drift = 1.0 / 2000;
    options.learning_rate = 0.05;
    const std::vector<double> losses = test::run_plan(plan, options).report.step_losses;
    const auto mean = [&](std::size_t first, std::size_t last) {
      return std::accumulate(losses.begin() + static_cast<std::ptrdiff_t>(first),
                             losses.begin() + static_cast<std::ptrdiff_t>(last), 0.0) /
             static_cast<double>(last - first);
    };
    CHECK(mean(1000, 2000) < 0.7 * mean(0, 100));
  }

  TEST_CASE("what a stream of frames cannot have is refused") {
    CHECK(refusal(frames_plan(test::mlp(2), {2}, DType::float32), frames_run(9)) == "");
    CHECK(refusal(frames_plan(test::mlp(2), {2}, DType::float32, /*per_frame=*/4), frames_run(9)) ==
          "schedule partime: frames have 4 samples each, the last one has 1; give a multiple, or plan with "
          "--mini-batch 1");
    CHECK(refusal(frames_plan(test::residual_net(), {}, DType::float32), frames_run(9)) ==
          "layer \"bn0\": batch norm: schedule partime sees one frame at a time, whose statistics are no "
          "batch's; use "
          "layer_norm or group_norm, or plan with pipedream");
    CHECK(refusal(frames_plan(test::skip_mlp(), {2, 4}, DType::float32), frames_run(9)) ==
          "/workers: stage 2 reads from stage 0; schedule partime hands frames to the next stage only, cut the "
          "model "
          "elsewhere");
  }
}

}  // namespace partime_test
