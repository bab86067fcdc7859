// Evaluations at steps, and what a training makes of them: the best checkpoint, and an early end. What the same
// training says that only evaluates decides what must come out.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace evaluations_test {

using namespace pp;
namespace fs = std::filesystem;

namespace {

plan::Plan two_stages() { return make_plan({.model = test::dropout_mlp(), .cuts = {3}}); }

// Steps so large that the test loss falls and rises; evaluated at steps 2, 4, 6, ... and at 21, epochs end at
// 3, 6, ...
run::RunOptions options_of(std::int64_t steps = 21) {
  run::RunOptions options = test::synthetic_options(steps);
  options.learning_rate = 0.3;
  options.evaluate_every = 2;
  return options;
}

std::vector<std::int64_t> steps_of(const run::RunReport& report) {
  std::vector<std::int64_t> steps;
  for (const run::EvaluationReport& evaluation : report.evaluations) steps.push_back(evaluation.step);
  return steps;
}

/// What keep_best and early_stop have to come to after these evaluations.
struct Expected {
  std::int64_t end = 0, best = 0, since = 0;
  double loss = 0;
};
Expected expected_of(const std::vector<run::EvaluationReport>& evaluations, std::int64_t patience) {
  Expected found;
  for (const run::EvaluationReport& evaluation : evaluations) {
    const bool better = found.end == 0 || *evaluation.test_loss < found.loss;
    found = {evaluation.step, better ? evaluation.step : found.best, better ? 0 : found.since + 1,
             better ? *evaluation.test_loss : found.loss};
    if (found.since >= patience) break;
  }
  return found;
}

void check_end(const run::RunReport& report, const Expected& expected) {
  REQUIRE(report.best.has_value());
  CHECK(report.best->step == expected.best);
  CHECK(report.best->test_loss == expected.loss);
  CHECK(report.best->evaluations_since == expected.since);
}

/// The weights after so many steps of a training that does nothing else.
test::NamedTensors weights_after(std::int64_t steps) {
  run::RunOptions options = options_of(steps);
  options.evaluate_every.reset();
  return test::run_plan(two_stages(), options).tensors;
}

}  // namespace

TEST_SUITE("librun/evaluations") {
  TEST_CASE("evaluations come at their steps, on threads and on ranks, and see the weights of their step") {
    const run::RunReport report = test::run_plan(two_stages(), options_of(7)).report;
    CHECK(steps_of(report) == std::vector<std::int64_t>{2, 4, 6, 7});
    REQUIRE(report.epochs.size() == 3);
    CHECK_FALSE(report.epochs[0].test_loss.has_value());
    CHECK(report.epochs[1].test_loss == report.evaluations[2].test_loss);
    const test::Run ranks = test::run_on(2, two_stages(), options_of(7));
    CHECK(steps_of(ranks.report) == steps_of(report));
    CHECK(test::first_difference(weights_after(7), ranks.tensors) == "");
    for (std::size_t i = 0; i < report.evaluations.size(); ++i) {
      run::RunOptions options = options_of(report.evaluations[i].step);
      options.evaluate_every.reset();  // one evaluation at the end
      const run::RunReport shorter = test::run_plan(two_stages(), options).report;
      CHECK(report.evaluations[i].test_loss == shorter.epochs.back().test_loss);
      CHECK(report.evaluations[i].test_accuracy == shorter.epochs.back().test_accuracy);
      CHECK(ranks.report.evaluations[i].test_loss == report.evaluations[i].test_loss);
      CHECK(report.evaluations[i].epoch == (report.evaluations[i].step - 1) / 3);
    }
  }

  TEST_CASE("the best checkpoint stays, its weights are written, and a training ends without a lesser loss") {
    const std::vector<run::EvaluationReport> all =
        test::run_plan(two_stages(), options_of()).report.evaluations;
    for (const bool on_ranks : {false, true}) {
      for (const std::int64_t patience : {std::int64_t{2}, std::int64_t{100}}) {
        CAPTURE(on_ranks);
        CAPTURE(patience);
        const Expected expected = expected_of(all, patience);
        REQUIRE(expected.best < expected.end);
        REQUIRE((expected.end < 21) == (patience == 2));
        const TestFolder folder;
        run::RunOptions options = options_of();
        options.checkpoint = folder.path() / "ck";
        options.checkpoints_kept = 1;
        options.keep_best = true;
        options.early_stop = patience;
        const test::Run run =
            on_ranks ? test::run_on(2, two_stages(), options) : test::run_plan(two_stages(), options);
        check_end(run.report, expected);
        CHECK(run.report.steps == expected.end);
        CHECK(run.report.exit_reason == (expected.end < 21 ? "stopped_early" : "completed"));
        const std::vector<fs::path> kept = run::checkpoints_of(options.checkpoint);
        REQUIRE(kept.size() == 2);
        CHECK(run::step_of_checkpoint(kept[0]) == expected.end);
        CHECK(kept[1] == run.report.best->checkpoint);
        CHECK(run::step_of_checkpoint(kept[1]) == expected.best);
        CHECK(test::first_difference(weights_after(expected.best), run.tensors) == "");
      }
    }
  }

  TEST_CASE("killed or interrupted anywhere, a training comes to the same best and the same end") {
    const std::vector<run::EvaluationReport> all =
        test::run_plan(two_stages(), options_of()).report.evaluations;
    const Expected expected = expected_of(all, 3);
    REQUIRE(expected.end < 21);
    const TestFolder folder;
    run::RunOptions options = options_of();
    options.keep_best = true;
    options.early_stop = 3;
    options.checkpoint = folder.path() / "whole";
    options.checkpoint_steps = 1;
    options.checkpoints_kept = 100;
    test::run_plan(two_stages(), options);
    for (std::int64_t killed = 1; killed <= expected.end; ++killed) {
      CAPTURE(killed);
      run::RunOptions rest = options;
      rest.checkpoint = rest.resume = folder.path() / ("killed-" + std::to_string(killed));
      fs::create_directories(rest.checkpoint);
      for (std::int64_t step = 1; step <= killed; ++step)
        fs::copy(run::place_of_checkpoint(options.checkpoint, step),
                 run::place_of_checkpoint(rest.checkpoint, step), fs::copy_options::recursive);
      const test::Run run = test::run_plan(two_stages(), rest);
      check_end(run.report, expected);
      CHECK(run.report.steps == expected.end - killed);
      CHECK(run.report.exit_reason == "stopped_early");
      CHECK(test::first_difference(weights_after(expected.best), run.tensors) == "");
    }
    // Interrupted as it comes, also while it evaluates: every other start goes on a little.
    options.checkpoint = options.resume = folder.path() / "interrupted";
    options.checkpoint_steps.reset();
    std::int64_t done = 0;
    for (int start = 0; start < 60; ++start) {
      test::SilentObserver observer;
      int asked = 0;
      const run::RunReport report =
          test::run_checked(two_stages(), options, observer, [&] { return ++asked > 6 + start % 5; });
      done += report.steps;
      if (report.exit_reason != "stopped_early") continue;
      check_end(report, expected);
      break;
    }
    CHECK(done == expected.end);
  }

  TEST_CASE("an asynchronous training goes on as if it had not ended, with the same evaluations") {
    const plan::Plan plan = make_plan({.model = test::mlp(3),
                                       .cuts = {2, 4},
                                       .schedule = "pipedream",
                                       .mini_batch = 4,
                                       .micro_batches = 1,
                                       .dtype = DType::float64});
    run::RunOptions options = options_of(18);  // six steps of 4 in each epoch
    options.learning_rate = 0.1;
    options.evaluate_every = 4;
    options.early_stop = 100;
    const test::Run whole = test::run_plan(plan, options);
    const TestFolder folder;
    options.checkpoint = options.resume = folder.path() / "ck";
    options.checkpoint_steps = 4;
    test::SilentObserver observer;
    test::run_checked(plan, options, observer, [&] { return observer.steps.size() >= 8; });
    fs::remove_all(options.checkpoint / "step-9");
    for (const fs::path& checkpoint : run::checkpoints_of(options.checkpoint))
      if (run::step_of_checkpoint(checkpoint) > 8) fs::remove_all(checkpoint);
    const test::Run rest = test::run_plan(plan, options);
    CHECK(test::first_difference(whole.tensors, rest.tensors) == "");
    CHECK(rest.report.best == whole.report.best);
  }

  TEST_CASE("what would never be evaluated, or kept, is refused") {
    const auto refused = [](const std::function<void(run::RunOptions&)>& change) -> std::string {
      run::RunOptions options = test::synthetic_options(6);
      change(options);
      try {
        run::check(two_stages(), options);
      } catch (const Error& error) {
        return error.what();
      }
      return "accepted";
    };
    CHECK(refused([](auto& o) { o.evaluate_every = 0; }) == "evaluate_every = 0: must be at least 1");
    CHECK(refused([](auto& o) { o.early_stop = 0; }) == "early_stop = 0: must be at least 1");
    for (const auto& [option, set] : std::vector<std::pair<std::string, std::function<void(run::RunOptions&)>>>{
             {"--evaluate-every", [](auto& o) { o.evaluate_every = 2; }},
             {"--keep-best", [](auto& o) { o.keep_best = true; }},
             {"--early-stop", [](auto& o) { o.early_stop = 2; }}}) {
      CHECK(refused([&](auto& o) {
              set(o);
              o.evaluate = false;
            }) == option + ": nothing is evaluated: --no-evaluate says so; leave that out");
    }
    CHECK(refused([](auto& o) { o.keep_best = true; }) ==
          "--keep-best keeps the best checkpoint; give their folder with --checkpoint");
    const TestFolder folder;
    run::RunOptions options = options_of(4);
    options.keep_best = true;
    options.checkpoint = folder.path() / "a";
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(two_stages(), options, observer);
    options.resume = options.checkpoint;
    options.checkpoint = folder.path() / "b";
    options.steps = 6;
    CHECK_THROWS_WITH_AS(
        run::check(two_stages(), options),
        ("--keep-best: the best so far is of step " + std::to_string(report.best->step) + ", and there is no " +
         run::place_of_checkpoint(options.checkpoint, report.best->step).string() +
         "; go on in the folder that has it, or leave --keep-best out")
            .c_str(),
        Error);
  }
}

}  // namespace evaluations_test
