// Trainings whose interval of checkpoints is chosen by its cost (librun/drive/checkpoint_interval.h).
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "librun/drive/checkpoint_interval.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace every_auto_test {

using namespace pp;
namespace fs = std::filesystem;

namespace {

run::RunOptions options_for(std::int64_t steps) {
  run::RunOptions options = test::synthetic_options(steps);
  options.weight_decay = 0.01;
  return options;
}

/// At step 60 of a training it waits until there is a checkpoint, however fast steps are.
struct FirstCheckpointObserver : test::SilentObserver {
  explicit FirstCheckpointObserver(fs::path to) : folder(std::move(to)) {}
  void step(const run::Progress& progress) override {
    if (progress.step != 60) return;
    while (run::checkpoints_of(folder).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    step_of_first = std::stoi(run::checkpoints_of(folder).back().filename().string().substr(5));  // step-N
  }
  void information(std::string_view text) override {
    if (text.starts_with("--every auto")) said = text;
  }

  fs::path folder;
  int step_of_first = 0;
  std::string said;
};

}  // namespace

TEST_SUITE("librun/every_auto") {
  TEST_CASE("checkpoints of --every auto begin after eight steps, change nothing, and say what was chosen") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    run::RunOptions options = options_for(200);
    options.checkpoint = folder.path() / "ck";
    options.checkpoint_auto = true;
    options.between_failures = Seconds(1e-6);  // so often that the next one follows at once
    options.save_weights = folder.path() / "weights";
    FirstCheckpointObserver observer(options.checkpoint);
    const run::RunReport found = test::run_checked(plan, options, observer, [] { return false; });
    CHECK(observer.step_of_first >= 8);
    CHECK(observer.said.starts_with("--every auto: the first checkpoint took "));
    REQUIRE(found.checkpoints.has_value());
    CHECK(found.checkpoints->written > 2);
    REQUIRE(found.checkpoints->choice.has_value());
    CHECK(found.checkpoints->choice->cost >= run::CheckpointCost::kLeast);
    CHECK(found.checkpoints->choice->interval == Seconds(1e-6));  // no more than between failures
    CHECK(test::first_difference(test::train_alone(plan, options_for(200)).tensors,
                                 run::read_weights(options.save_weights)) == "");
    options.checkpoint = folder.path() / "seldom";
    options.between_failures = Seconds(1e9);  // at least sqrt(2 * 1e-3 * 1e9) s, longer than this training
    FirstCheckpointObserver seldom(options.checkpoint);
    const run::RunReport other = test::run_checked(plan, options, seldom, [] { return false; });
    CHECK(other.checkpoints->written == 2);  // the first one, and the end's
  }
}

}  // namespace every_auto_test
