// Losses that are multiplied before the backward, so that gradients in float16 do not vanish.
#include "librun/options/position.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace loss_scale_test {

using namespace pp;

namespace {

run::RunOptions options_for(std::int64_t steps) {
  run::RunOptions options = pp::test::synthetic_options(steps);  // twelve steps of 2 in each epoch
  options.evaluate = false;
  return options;
}

run::RunOptions in_float16(std::int64_t steps) {
  run::RunOptions options = options_for(steps);
  options.autocast = Autocast::float16;
  return options;
}

// Two samples an update, one in a micro-batch: the gradient of an error of 2 is 1, and 2^16 of it is more than
// float16 holds, whose largest number is 65504.
PlanSpec narrow(std::vector<int> cuts, const std::string& schedule) {
  return {.model = test::regression(),
          .cuts = std::move(cuts),
          .schedule = schedule,
          .mini_batch = 2,
          .micro_batches = 2};
}

}  // namespace

TEST_SUITE("librun/loss_scale") {
  TEST_CASE("a dynamic scale: half after a step that is not finite, twice after 2,000 that are") {
    run::LossScale scale = run::initial_loss_scale({}, /*dynamic=*/true);
    CHECK(scale == run::LossScale{65536, 0});
    CHECK(run::initial_loss_scale(8, true).factor == 8);
    CHECK(run::initial_loss_scale({}, false).factor == 1);
    for (int i = 1; i < 2000; ++i) scale = run::next_loss_scale(scale, true);
    CHECK(scale == run::LossScale{65536, 1999});
    CHECK(run::next_loss_scale(scale, true) == run::LossScale{131072, 0});
    CHECK(run::next_loss_scale(scale, false) == run::LossScale{32768, 0});
  }

  TEST_CASE("float16 with a dynamic scale equals the single device bit for bit, steps that are skipped too") {
    const test::Trained expected = test::train_alone(make_plan(narrow({}, "gpipe")), in_float16(12));
    REQUIRE(expected.skipped >= 1);  // 2^16 is too large here ...
    REQUIRE(expected.skipped <= 4);  // ... and a little less is not
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      for (const std::vector<int>& cuts : {std::vector<int>{1}, {1, 2}}) {
        CAPTURE(schedule);
        const test::Run found = test::run_plan(make_plan(narrow(cuts, schedule)), in_float16(12));
        CHECK(test::first_difference(expected.tensors, found.tensors) == "");
        CHECK(found.report.skipped_steps == expected.skipped);
      }
    }
    const test::Trained wide = test::train_alone(make_plan(narrow({}, "gpipe")), options_for(12));
    CHECK(test::first_difference(wide.tensors, expected.tensors) != "");
  }

  TEST_CASE("an epoch may be over before the scale is small enough: the next one goes on") {
    PlanSpec spec = narrow({1}, "1f1b");
    run::RunOptions options = in_float16(24);
    options.synthetic_samples = 2;  // an epoch is one step
    test::Trained expected;
    for (options.seed = 1; options.seed < 50 && expected.skipped == 0; ++options.seed)  // errors large enough
      expected = test::train_alone(make_plan(narrow({}, "gpipe")), options);
    --options.seed;
    REQUIRE(expected.skipped >= 1);
    REQUIRE(expected.skipped < 12);
    const test::Run found = test::run_plan(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.skipped_steps == expected.skipped);
    CHECK(std::isnan(found.report.epochs.at(0).train_loss));
    CHECK(std::isfinite(found.report.epochs.back().train_loss));
    const run::RunReport read = run::report_from_json(parse_json(dump_json(run::to_json(found.report))));
    CHECK(std::isnan(read.epochs.at(0).train_loss));
  }

  TEST_CASE("where no scale helps the run ends with the step and the layer") {
    const TestFolder folder;
    const std::vector<float> images(64 * 5, std::numeric_limits<float>::quiet_NaN());
    const std::string_view bytes(reinterpret_cast<const char*>(images.data()), images.size() * sizeof(float));
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::float32, {64, 5}, bytes));
    folder.write("train-labels.idx", run::idx_bytes(run::ElementType::uint8, {64}, std::string(64, '\1')));
    const PlanSpec spec{.model = test::mlp(4), .cuts = {4}, .mini_batch = 2, .micro_batches = 2};  // 32 steps
    run::RunOptions options = in_float16(64);
    options.data = folder.path().string();
    std::string message;
    try {
      test::run_plan(make_plan(spec), options);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::run);
      message = error.what();
    }
    CAPTURE(message);
    // 2^16 is 2^-24 after 40 steps.
    CHECK(message.find("step 41: stage 1: the loss of micro-batch 0 is not a finite number, although the loss "
                       "scale has fallen to 2^-24; lower the learning rate, or check the data") !=
          std::string::npos);
  }
}

}  // namespace loss_scale_test
