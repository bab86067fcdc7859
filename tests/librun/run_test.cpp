#include "librun/run.h"

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/device/machine.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace run_test {

using namespace pp;

namespace {

run::RunOptions synthetic(int samples, int epochs) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = samples;
  options.epochs = epochs;
  options.learning_rate = 0.05;
  return options;
}

// Lets a worker wait until the driver has said something, which it does once the gates are closed.
class Told : public test::SilentObserver {
 public:
  void warning(std::string_view text) override {
    SilentObserver::warning(text);
    if (text.starts_with("interrupted")) said_.set_value();
  }
  // The bound ends a test that fails.
  void wait() { said_.get_future().wait_for(std::chrono::seconds(20)); }

 private:
  std::promise<void> said_;
};

// Is in its first step until somebody has begun the next epoch.
class BehindWorkers : public test::SilentObserver {
 public:
  void step(const run::Progress& progress) override {
    SilentObserver::step(progress);
    if (steps.size() == 1) begun_.get_future().wait_for(std::chrono::seconds(20));
  }
  void next_epoch_begins() { begun_.set_value(); }

 private:
  std::promise<void> begun_;
};

plan::Plan two_stages(const char* schedule = "1f1b") {
  return make_plan({.model = test::dropout_mlp(), .cuts = {3}, .schedule = schedule});
}

}  // namespace

TEST_SUITE("librun/run") {
  TEST_CASE("synthetic data are learned, and evaluation says so") {
    run::RunOptions options = synthetic(256, 12);
    test::SilentObserver observer;
    const run::RunReport report =
        test::run_checked(make_plan({.model = test::mlp(2), .cuts = {2}, .mini_batch = 16}), options, observer);
    CHECK(report.exit_reason == "completed");
    CHECK(report.steps == 12 * 16);
    REQUIRE(report.epochs.size() == 12);
    CHECK((observer.epochs == report.epochs));
    CHECK(report.epochs.back().train_loss < 0.5 * report.epochs.front().train_loss);
    REQUIRE(report.epochs.back().test_accuracy.has_value());
    CHECK(*report.epochs.back().test_accuracy > 0.9);
    CHECK(*report.epochs.back().test_loss < 0.5);
  }

  TEST_CASE("the epoch's loss is the mean over its samples, steps are told in order") {
    run::RunOptions options = synthetic(22, 1);  // 8, 8, 6
    options.evaluate = false;
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(two_stages(), options, observer);
    REQUIRE(report.step_losses.size() == 3);
    const double mean =
        (8 * report.step_losses[0] + 8 * report.step_losses[1] + 6 * report.step_losses[2]) / 22;
    CHECK(report.epochs.at(0).train_loss == doctest::Approx(mean).epsilon(1e-12));
    CHECK_FALSE(report.epochs.at(0).test_loss.has_value());
    REQUIRE(observer.steps.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(observer.steps[i].step == static_cast<std::int64_t>(i) + 1);
      CHECK(observer.steps[i].steps == 3);
      CHECK(observer.steps[i].loss == report.step_losses[i]);
    }
  }

  TEST_CASE("what is told of a step agrees with the report, whatever the schedule") {
    for (const char* schedule : {"1f1b", "pipedream"}) {
      CAPTURE(schedule);
      run::RunOptions options = synthetic(22, 2);  // 8, 8, 6
      options.lr_schedule = "step";
      options.lr_step_size = 4;
      test::SilentObserver observer;
      const int micro_batches = std::string(schedule) == "pipedream" ? 1 : 4;
      const run::RunReport report = test::run_checked(make_plan({.model = test::dropout_mlp(),
                                                                 .cuts = {3},
                                                                 .schedule = schedule,
                                                                 .micro_batches = micro_batches}),
                                                      options, observer);
      REQUIRE(observer.steps.size() == 6);
      Bytes peak;
      for (std::size_t i = 0; i < 6; ++i) {
        const run::Progress& step = observer.steps[i];
        CHECK(step.learning_rate == doctest::Approx(i < 4 ? 0.05 : 0.005));
        CHECK(step.samples == (i % 3 == 2 ? 6 : 8));
        CHECK(step.elapsed > (i == 0 ? Seconds(0) : observer.steps[i - 1].elapsed));
        CHECK(step.samples_per_s > 0);
        CHECK(step.bubble_fraction >= 0);
        CHECK(step.bubble_fraction < 1);
        CHECK_FALSE(step.gradient_norm.has_value());
        peak = std::max(peak, step.peak);
      }
      CHECK(peak == std::max(report.workers[0].peak, report.workers[1].peak));
      REQUIRE(observer.epochs.size() == 2);
      CHECK(observer.epochs[1].last_step == 6);
      CHECK(observer.epochs[1].elapsed == observer.steps[5].elapsed);
      CHECK(observer.epochs[1].evaluation.count() > 0);
    }
  }

  TEST_CASE("the gradient's norm is told before it is limited, the same for every plan") {
    run::RunOptions options = synthetic(16, 1);
    options.optimizer["momentum"] = 0;
    const auto norms = [&](const plan::Plan& plan, double limit) {
      options.clip_norm = limit;
      test::SilentObserver observer;
      test::run_checked(plan, options, observer);
      return std::vector<double>{observer.steps.at(0).gradient_norm.value(),
                                 observer.steps.at(1).gradient_norm.value()};
    };
    const std::vector<double> free = norms(two_stages(), 1e9);
    CHECK(norms(make_plan({.model = test::dropout_mlp()}), 1e9) == free);
    CHECK(norms(two_stages(), 1e8) == free);  // a norm below the limit changes nothing
    CHECK(norms(two_stages(), 1e-3)[0] == free[0]);
    CHECK(free[0] > 1e-3);
  }

  TEST_CASE("two runs with one seed are identical, another seed is not; so are their files for any plan") {
    const TestFolder folder;
    const auto bytes = [&](const plan::Plan& plan, std::uint64_t seed) {
      run::RunOptions options = synthetic(32, 1);
      options.seed = seed;
      options.save_weights = folder.path() / "w.safetensors";
      test::SilentObserver observer;
      test::run_checked(plan, options, observer);
      return read_file(options.save_weights);
    };
    const std::string first = bytes(two_stages(), 5);
    CHECK(first == bytes(two_stages(), 5));
    CHECK(first == bytes(two_stages("gpipe"), 5));
    CHECK(first == bytes(make_plan({.model = test::dropout_mlp()}), 5));
    CHECK(first != bytes(two_stages(), 6));
    CHECK(folder.file_count() == 1);
  }

  TEST_CASE("evaluation does not depend on the plan") {
    run::RunOptions options = synthetic(40, 2);
    test::SilentObserver one, two, three;
    PlanSpec spec{.model = test::residual_net()};
    test::run_checked(make_plan(spec), options, one);
    spec.cuts = {4, 9};
    test::run_checked(make_plan(spec), options, two);
    REQUIRE(one.epochs.size() == 2);
    for (std::size_t e = 0; e < 2; ++e) {
      CHECK(one.epochs[e].test_loss == two.epochs[e].test_loss);
      CHECK(one.epochs[e].test_accuracy == two.epochs[e].test_accuracy);
    }
    spec.replicas = {2, 1, 2};
    test::run_checked(make_plan(spec), options, three);
    CHECK(*three.epochs[1].test_loss == doctest::Approx(*one.epochs[1].test_loss).epsilon(1e-4));
  }

  TEST_CASE("mse trains and reports a loss without accuracy") {
    test::SilentObserver observer;
    const run::RunReport report =
        test::run_checked(make_plan({.model = test::regression(), .cuts = {1}}), synthetic(128, 6), observer);
    CHECK(report.epochs.back().train_loss < 0.7 * report.epochs.front().train_loss);
    CHECK(report.epochs.back().test_loss.has_value());
    CHECK_FALSE(report.epochs.back().test_accuracy.has_value());
  }

  TEST_CASE("an interrupted run finishes its step, stops all workers at the same one and keeps its weights") {
    for (const char* schedule : {"1f1b", "gpipe", "pipedream"}) {
      CAPTURE(schedule);
      const bool streams = std::string(schedule) == "pipedream";
      const plan::Plan plan = make_plan({.model = test::mlp(2),
                                         .cuts = {2},
                                         .replicas = {2, 1},
                                         .schedule = schedule,
                                         .mini_batch = 4,
                                         .micro_batches = streams ? 1 : 4});
      const TestFolder folder;
      run::RunOptions options = synthetic(400, 3);  // 100 steps in an epoch
      options.save_weights = folder.path() / "w.safetensors";
      test::SilentObserver observer;
      const run::RunReport report =
          test::run_checked(plan, options, observer, [&] { return observer.steps.size() >= 5; });
      CHECK(report.exit_reason == "interrupted");
      // Five were done; the ones already begun are finished: at most those allowed to start when four were
      // done, 8 steps from there, or two windows of the stream in rounds.
      CHECK(report.steps >= 5);
      CHECK(report.steps <= (streams ? 5 + 2 * 5 + 2 : 4 + 8));
      CHECK(report.steps % (streams ? 2 : 1) == 0);
      CHECK(report.epochs.empty());
      CHECK(report.step_losses.size() == static_cast<std::size_t>(report.steps));
      // The same number of steps, uninterrupted, gives the same weights.
      const auto interrupted = read_file(options.save_weights);
      run::RunOptions same = options;
      same.epochs.reset();
      same.steps = report.steps;
      test::run_checked(plan, same, observer);
      CHECK(read_file(options.save_weights) == interrupted);
    }
  }

  TEST_CASE("an interruption finishes the steps that are in flight and no others") {
    // The interruption comes while stage 0 is in its 4th unit (1f1b: step 3, pipedream: mini-batch 3 of 100),
    // and nobody is further. The lead of a stream would be 6 units.
    for (const char* schedule : {"1f1b", "pipedream"}) {
      CAPTURE(schedule);
      const bool streams = std::string(schedule) == "pipedream";
      const plan::Plan plan = make_plan({.model = test::mlp(2),
                                         .cuts = {2},
                                         .schedule = schedule,
                                         .mini_batch = 4,
                                         .micro_batches = streams ? 1 : 4});
      std::atomic<bool> asked = false;
      Told told;
      run::RunOptions options = synthetic(400, 1);
      options.before_op = [&](std::int64_t step, WorkerId, const plan::Op& op) {
        if (step != 3 || plan::to_text(op) != (streams ? "F0.3" : "F0.0")) return;
        asked = true;
        told.wait();
      };
      const run::RunReport report = test::run_checked(plan, options, told, [&] { return asked.load(); });
      CHECK(report.steps == 4);
      CHECK(report.exit_reason == "interrupted");
      REQUIRE_FALSE(told.warnings.empty());
      CHECK(told.warnings.back() == "interrupted: the run ends with step 4 of 100");
    }
  }

  // An epoch has two steps. The driver hears of step 0 when the first stage has begun step 2, of the next
  // epoch.
  TEST_CASE("an interruption ends with the last step that is in flight, also when that is in the next epoch") {
    for (const char* schedule : {"1f1b", "pipedream"}) {
      CAPTURE(schedule);
      const bool streams = std::string(schedule) == "pipedream";
      const plan::Plan plan = make_plan({.model = test::mlp(2),
                                         .cuts = {2},
                                         .schedule = schedule,
                                         .mini_batch = 4,
                                         .micro_batches = streams ? 1 : 4});
      const TestFolder folder;
      run::RunOptions options = synthetic(8, 50);
      options.evaluate = false;
      options.save_weights = folder.path() / "w.safetensors";
      options.checkpoint = folder.path() / "ck";
      options.checkpoint_steps = 2;
      BehindWorkers observer;
      std::atomic<bool> begun = false;
      options.before_op = [&](std::int64_t step, WorkerId, const plan::Op&) {
        if (step == 2 && !begun.exchange(true)) observer.next_epoch_begins();
      };
      const run::RunReport report = test::run_checked(plan, options, observer, [&] { return begun.load(); });
      CHECK(report.exit_reason == "interrupted");
      CHECK(report.steps >= 3);
      REQUIRE_FALSE(observer.warnings.empty());
      CHECK(observer.warnings.back() ==
            "interrupted: the run ends with step " + std::to_string(report.steps) + " of 100");
      CHECK(run::find_checkpoint(options.checkpoint).manifest.position.step == report.steps);
      const auto interrupted = read_file(options.save_weights);
      run::RunOptions same = options;
      same.epochs.reset();
      same.steps = report.steps;
      same.checkpoint = folder.path() / "same";
      test::run_checked(plan, same, observer);
      CHECK(read_file(options.save_weights) == interrupted);
    }
  }

  TEST_CASE("an interruption during an evaluation leaves it, also in the last epoch") {
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    run::RunOptions options = synthetic(32, 1);  // 4 steps
    std::atomic<bool> asked = false;
    std::atomic<int> forwards = 0;
    Told told;
    options.before_op = [&](std::int64_t step, WorkerId, const plan::Op& op) {
      if (step >= 0 || op.stage != StageId{0}) return;
      if (++forwards != 2) return;
      asked = true;
      told.wait();
    };
    const run::RunReport report = test::run_checked(plan, options, told, [&] { return asked.load(); });
    CHECK(report.exit_reason == "interrupted");
    CHECK(report.steps == 4);
    CHECK(forwards == 2);  // of 4 or more
    REQUIRE(report.epochs.size() == 1);
    CHECK_FALSE(report.epochs[0].test_loss.has_value());
  }

  TEST_CASE("an interruption during the last step of the last epoch is one") {
    run::RunOptions options = synthetic(32, 1);
    options.evaluate = false;
    test::SilentObserver observer;
    const run::RunReport report =
        test::run_checked(two_stages(), options, observer, [&] { return observer.steps.size() == 4; });
    CHECK(report.exit_reason == "interrupted");
    CHECK(report.steps == 4);
    CHECK(report.epochs.size() == 1);
  }

  TEST_CASE("the report counts times, bytes and messages") {
    run::RunOptions options = synthetic(32, 2);
    options.trace = true;
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(two_stages(), options, observer);
    CHECK(report.step.count() > 0);
    CHECK(report.bubble_fraction >= 0);
    CHECK(report.bubble_fraction < 1);
    REQUIRE(report.workers.size() == 2);
    // fc0 of stage 0: 16*5 + 16 floats = 384 bytes; its gradient and its momentum as many.
    CHECK(report.workers[0].weights == Bytes(384));
    CHECK(report.workers[0].gradients == Bytes(384));
    CHECK(report.workers[0].optimizer == Bytes(384));
    CHECK(report.workers[0].versions == Bytes(0));
    // One 16-float vector per sample, 8 samples: 512 bytes a step each way.
    CHECK(report.workers[0].sent_per_step == Bytes(512));
    CHECK(report.workers[1].sent_per_step == Bytes(512));
    for (const run::WorkerReport& worker : report.workers) {
      CHECK(worker.busy.count() > 0);
      CHECK(worker.peak >= worker.weights + worker.gradients + worker.optimizer);
      CHECK(worker.saved.value > 0);
    }
    CHECK(report.workers[0].peak_in_flight == 2);
    CHECK(report.workers[1].peak_in_flight == 1);
    // 8 steps: 32 forwards and backwards of each stage, 8 updates.
    for (const run::OpTime& row : report.op_times)
      CHECK(row.count == (row.kind == plan::OpKind::update ? 8 : 32));
    CHECK(report.op_times.size() == 6);
    CHECK(parse_json(report.trace).is_object());
    CHECK(run::to_json(run::report_from_json(run::to_json(report))) == run::to_json(report));
  }

  TEST_CASE("a shared core is a warning") {
    test::SilentObserver observer;
    plan::Plan plan = two_stages();
    const int core = profile::usable_cores().front();
    for (Device& device : plan.devices) device.cores = {core};
    test::run_checked(plan, synthetic(16, 1), observer);
    REQUIRE(observer.warnings.size() == 1);
    CHECK(observer.warnings[0].starts_with("core " + std::to_string(core) + " is shared by 2 devices: "));
  }
}

}  // namespace run_test
