// Steps whose loss or gradient is not finite: all workers decide together, before any of them updates.
#include <cmath>
#include <limits>
#include <vector>

#include <nlohmann/json.hpp>

#include "libprofile/model/parameters.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "librun/data/readers.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace not_finite_test {

using namespace pp;

namespace {

constexpr int kSamples = 40;  // five mini-batches of 8
constexpr std::size_t kNone = kSamples;

// 40 samples of this shape without the mini-batch `left_out`; sample `broken` of the 40 has a number that is
// not finite.
void write_data(const TestFolder& folder, std::size_t broken, std::size_t left_out = kNone, Shape shape = {5}) {
  std::vector<float> images;
  std::string labels;
  const auto numbers = static_cast<std::size_t>(element_count(shape));
  for (std::size_t i = 0; i < kSamples; ++i) {
    if (i / 8 == left_out) continue;
    for (std::size_t d = 0; d < numbers; ++d)
      images.push_back(i == broken && d == 2
                           ? std::numeric_limits<float>::quiet_NaN()
                           : static_cast<float>(std::sin(0.7 * static_cast<double>(7 * i + d))));
    labels.push_back(static_cast<char>(i % 3));
  }
  const auto samples = static_cast<std::int64_t>(labels.size());
  shape.insert(shape.begin(), samples);
  const std::string_view bytes(reinterpret_cast<const char*>(images.data()), images.size() * sizeof(float));
  folder.write("train-images.idx", run::idx_bytes(run::ElementType::float32, shape, bytes));
  folder.write("train-labels.idx", run::idx_bytes(run::ElementType::uint8, {samples}, labels));
}

run::RunOptions options_of(const TestFolder& folder, std::optional<run::OnNan> on_nan) {
  run::RunOptions options;
  options.data = folder.path().string();
  options.epochs = 1;
  options.learning_rate = 0.1;
  options.shuffle = false;
  options.on_nan = on_nan;
  return options;
}

std::vector<PlanSpec> specs() {
  std::vector<PlanSpec> all;
  all.push_back({.model = test::mlp(4), .cuts = {2, 5}, .optimizer = OptimizerName::adam});
  all.push_back({.model = test::mlp(4), .cuts = {2, 5}, .schedule = "zb-h1"});
  all.push_back({.model = test::mlp(4), .cuts = {4}, .replicas = {2, 1}, .schedule = "gpipe"});
  all.push_back({.model = test::shared_mlp(), .cuts = {3, 7}, .schedule = "gpipe"});
  // A step that left a trace would show in the running statistics and Adam's count of steps.
  all.push_back({.model = test::residual_net(), .cuts = {5}, .optimizer = OptimizerName::adam});
  return all;
}

}  // namespace

TEST_SUITE("librun/not_finite") {
  TEST_CASE("skip: the step changes nothing, as if its mini-batch were not there") {
    for (const PlanSpec& spec : specs()) {
      CAPTURE(spec.schedule);
      const plan::Plan plan = make_plan(spec);
      const TestFolder broken, without;
      const Shape& shape = spec.model.inputs[0].type.shape;
      write_data(broken, /*broken=*/19, kNone, shape);  // in the third mini-batch
      write_data(without, kNone, /*left_out=*/2, shape);
      const test::Run expected = test::run_plan(plan, options_of(without, {}));
      const test::Run found = test::run_plan(plan, options_of(broken, run::OnNan::skip));
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
      CHECK(found.report.exit_reason == "completed");
      CHECK(found.report.steps == 5);
      CHECK(found.report.skipped_steps == 1);
      REQUIRE(found.report.step_losses.size() == 5);
      CHECK(std::isnan(found.report.step_losses[2]));
      CHECK(found.report.epochs.at(0).train_loss == doctest::Approx(expected.report.epochs.at(0).train_loss));
      const run::RunReport read = run::report_from_json(parse_json(dump_json(run::to_json(found.report))));
      CHECK(std::isnan(read.step_losses.at(2)));
      CHECK(read.skipped_steps == 1);
    }
  }

  TEST_CASE("an evaluation that is not finite, or of labels that all do not count, is a warning") {
    ModelGraph model = test::mlp(2);
    model.loss->attributes["ignore_index"] = std::int64_t{2};
    const plan::Plan plan = make_plan({.model = model, .cuts = {2}});
    for (const bool ignored : {false, true}) {
      const TestFolder folder;
      write_data(folder, kNone);
      const std::vector<float> images(10, ignored ? 1 : std::numeric_limits<float>::infinity());
      folder.write("test-images.idx",
                   run::idx_bytes(run::ElementType::float32, {2, 5},
                                  {reinterpret_cast<const char*>(images.data()), 4 * images.size()}));
      folder.write("test-labels.idx",
                   run::idx_bytes(run::ElementType::uint8, {2}, ignored ? "\2\2" : std::string(2, '\0')));
      run::RunOptions options = options_of(folder, run::OnNan::skip);
      options.epochs = 3;
      test::SilentObserver observer;
      const run::RunReport report = test::run_checked(plan, options, observer);
      CHECK(report.exit_reason == "completed");
      CHECK(report.steps == 15);
      REQUIRE(observer.warnings.size() == 1);
      CHECK(observer.warnings[0] ==
            (ignored
                 ? "evaluation after step 5: none of the test labels counts, so there is no test loss; the "
                   "training goes on"
                 : "evaluation after step 5: the test loss is not finite; look at the test data, and at the "
                   "range of the dtype; the training goes on"));
      const Json epoch = run::to_json(report)["epochs"][2];
      CHECK(epoch.contains("test_loss") == !ignored);
      if (!ignored) CHECK(epoch["test_loss"].is_null());
      CHECK(dump_json(run::to_json(run::report_from_json(run::to_json(report)))) ==
            dump_json(run::to_json(report)));
    }
  }

  TEST_CASE("skip: a resumed epoch's loss is the mean over the steps that were made") {
    for (const int every : {1, 3, 4}) {
      CAPTURE(every);
      const TestFolder data, folder;
      write_data(data, /*broken=*/19);
      const plan::Plan plan = make_plan({.model = test::mlp(4), .cuts = {2, 5}});
      run::RunOptions options = options_of(data, run::OnNan::skip);
      const test::Run whole = test::run_plan(plan, options);
      options.checkpoint = options.resume = folder.path() / "ck";
      options.checkpoint_steps = every;
      options.epochs.reset();
      options.steps = every;
      test::SilentObserver observer;
      options.resume.clear();
      test::run_checked(plan, options, observer);
      options.resume = options.checkpoint;
      options.steps = 5;
      const run::RunReport resumed = test::run_checked(plan, options, observer);
      CHECK(resumed.epochs.at(0).train_loss == whole.report.epochs.at(0).train_loss);
    }
  }

  TEST_CASE("stop: the run ends with the weights of the step before and says where") {
    for (const PlanSpec& spec : specs()) {
      CAPTURE(spec.schedule);
      const plan::Plan plan = make_plan(spec);
      const TestFolder folder;
      write_data(folder, /*broken=*/19, kNone, spec.model.inputs[0].type.shape);
      run::RunOptions two = options_of(folder, {});
      two.epochs.reset();
      two.steps = 2;
      const test::Run expected = test::run_plan(plan, two);
      run::RunOptions options = options_of(folder, run::OnNan::stop);
      options.save_weights = folder.path() / "w.safetensors";
      test::SilentObserver observer;
      const run::RunReport report = test::run_checked(plan, options, observer);
      CHECK(report.exit_reason == "not_finite");
      CHECK(report.steps == 2);
      CHECK(report.step_losses == expected.report.step_losses);
      CHECK(test::first_difference(expected.tensors, run::read_weights(options.save_weights)) == "");
      REQUIRE_FALSE(observer.warnings.empty());
      const std::string last = std::to_string(plan.stages.size() - 1);
      CHECK(observer.warnings.back() == "step 3: stage " + last +
                                            ": the loss of micro-batch 1 is not a finite number; the run ends "
                                            "with the weights of the step before");
    }
  }

  TEST_CASE("stop: the last checkpoint is of the step before, however far the workers have run") {
    for (const int every : {1, 2, 3, 5}) {
      CAPTURE(every);
      const TestFolder data, folder;
      write_data(data, /*broken=*/19);
      run::RunOptions options = options_of(data, run::OnNan::stop);
      options.checkpoint = folder.path() / "ck";
      options.checkpoint_steps = every;
      const plan::Plan plan = make_plan({.model = test::mlp(4), .cuts = {2, 5}});
      test::SilentObserver observer;
      CHECK(test::run_checked(plan, options, observer).exit_reason == "not_finite");
      CHECK(run::find_checkpoint(options.checkpoint).manifest.position.step == 2);
      // What goes on from it meets the same step and skips it: as a run that has skipped it at once.
      options.resume = options.checkpoint;
      options.on_nan = run::OnNan::skip;
      const test::Run resumed = test::run_plan(plan, options);
      CHECK(resumed.report.steps == 3);
      const test::Run whole = test::run_plan(plan, options_of(data, run::OnNan::skip));
      CHECK(test::first_difference(whole.tensors, resumed.tensors) == "");
    }
  }

  TEST_CASE("a gradient that overflows behind a finite loss is found, with the stage and the layer") {
    // y = c b a x, loss y^2 = 2e38, which float32 holds; the gradient of a is 2 y^2 / a >= 4e38, which it does
    // not.
    const plan::Plan plan = make_plan(
        {.model = test::product(), .cuts = {1, 2}, .schedule = "gpipe", .mini_batch = 1, .micro_batches = 1});
    const ResolvedModel model = resolve(plan.model);
    std::vector<at::Tensor> initial;
    double product = 1;
    for (int layer = 0; layer < 3; ++layer) {
      initial.push_back(model::initial_parameter(model, layer, 0, /*seed=*/1, DType::float32));
      product *= initial.back().item<double>();
      REQUIRE(std::abs(initial.back().item<double>()) < 1);
    }
    const std::vector<float> x{0, static_cast<float>(std::sqrt(2e38) / product), 0}, y(3, 0);
    const auto bytes = [](const std::vector<float>& values) {
      return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    };
    const TestFolder folder;
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::float32, {3, 1}, bytes(x)));
    folder.write("train-labels.idx", run::idx_bytes(run::ElementType::float32, {3, 1}, bytes(y)));
    run::RunOptions options = options_of(folder, run::OnNan::skip);
    options.save_weights = folder.path() / "w.safetensors";
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(plan, options, observer);
    CHECK(report.skipped_steps == 1);
    CHECK(std::isfinite(report.step_losses.at(1)));
    REQUIRE_FALSE(observer.warnings.empty());
    CHECK(observer.warnings.back() ==
          "step 2: stage 0: the gradient of layer a is not a finite number; the step is skipped");
    const auto weights = run::read_weights(options.save_weights);
    for (std::size_t i = 0; i < 3; ++i) CHECK(weights.at(i).second.equal(initial[i]));  // the others give 0
  }
}

}  // namespace not_finite_test
