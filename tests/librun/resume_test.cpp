// Trainings that are cut into several runs: checkpoints, what they say and cost. That such a training ends as
// one that is not: promises_test.cpp.
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/model/families/families.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weights.h"
#include "librun/drive/checkpoint_interval.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace resume_test {

using namespace pp;
namespace fs = std::filesystem;

namespace {

// Three steps of 8 in each epoch of 24 samples.
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

// Three mini-batches of 8 samples and one of 6 in an epoch.
run::RunOptions options_of(int accumulate) {
  run::RunOptions options = pp::test::synthetic_options(3, 30);
  options.evaluate = false;
  options.accumulate = accumulate;
  return options;
}

}  // namespace

TEST_SUITE("librun/resume") {
  // A checkpoint knows nothing of the layout: with adam's state, from channels last to contiguous and back.
  TEST_CASE("a plan with channels last goes on from a checkpoint, and contiguous plans go on from its") {
    PlanSpec spec{.model = test::residual_net(),
                  .cuts = {6},
                  .dtype = DType::float64,
                  .memory_format = MemoryFormat::channels_last,
                  .optimizer = OptimizerName::adamw};
    const test::Run whole = test::run_plan(make_plan(spec), options_for(7));
    const plan::Plan last = make_plan(spec);
    CHECK(test::first_difference(whole.tensors,
                                 test::run_parts({{last, 3}, {last, 7}}, options_for(7)).tensors) == "");
    spec.memory_format = MemoryFormat::contiguous;
    const test::Run mixed = test::run_parts({{last, 3}, {make_plan(spec), 5}, {last, 7}}, options_for(7));
    CHECK(test::largest_difference(whole.tensors, mixed.tensors) < 1e-9);
  }

  TEST_CASE("epochs are numbered and their losses averaged over all parts") {
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    const test::Run expected = test::run_plan(plan, options_for(6));
    const test::Run found = test::run_parts({{plan, 2}, {plan, 6}}, options_for(6));
    REQUIRE(expected.report.epochs.size() == 2);
    REQUIRE(found.report.epochs.size() == 2);
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
      CHECK(found.report.epochs[epoch].epoch == static_cast<int>(epoch));
      CHECK(found.report.epochs[epoch].train_loss == expected.report.epochs[epoch].train_loss);
      CHECK(found.report.epochs[epoch].test_loss == expected.report.epochs[epoch].test_loss);
    }
  }

  TEST_CASE("every plan writes the same bytes, and as many checkpoints as it was told") {
    const TestFolder folder;
    const auto run = [&](const std::string& name, const PlanSpec& spec) {
      run::RunOptions options = options_for(6);
      options.optimizer["momentum"] = 0.9;
      options.checkpoint = folder.path() / name;
      options.checkpoint_steps = 2;
      options.checkpoints_kept = 2;
      test::SilentObserver observer;
      const run::RunReport report = test::run_checked(make_plan(spec), options, observer);
      REQUIRE(report.checkpoints.has_value());
      CHECK(report.checkpoints->written == 3);
      CHECK(report.checkpoints->size > Bytes(0));
      std::string bytes;
      for (const char* const step : {"step-4", "step-6"}) {
        for (const char* const file : {"weights.safetensors", "optimizer.safetensors"})
          bytes += read_file(options.checkpoint / step / file);
      }
      CHECK_FALSE(fs::exists(options.checkpoint / "step-2"));
      return bytes;
    };
    PlanSpec spec{.model = test::shared_mlp()};
    const std::string alone = run("alone", spec);
    spec.cuts = {3, 6};
    CHECK(run("three", spec) == alone);
  }

  TEST_CASE("checkpoints are charged to no worker: peaks are those of a training without them") {
    const TestFolder folder;
    const plan::Plan plan =
        make_plan({.model = test::residual_net(), .cuts = {6}, .optimizer = OptimizerName::adamw});
    run::RunOptions options = options_for(9);
    test::SilentObserver observer;
    const run::RunReport without = test::run_checked(plan, options, observer);
    options.checkpoint = folder.path() / "ck";
    options.checkpoint_steps = 2;
    const run::RunReport with = test::run_checked(plan, options, observer);
    for (std::size_t w = 0; w < 2; ++w) CHECK(with.workers[w].peak == without.workers[w].peak);
  }

  TEST_CASE("a training that was complete is resumed to write its weights") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    run::RunOptions options = options_for(4);
    options.checkpoint = folder.path() / "ck";
    const test::Run first = test::run_plan(plan, options);
    options.resume = options.checkpoint;
    const test::Run again = test::run_plan(plan, options);
    CHECK(again.report.steps == 0);
    CHECK(test::first_difference(first.tensors, again.tensors) == "");
    options.steps = 3;
    CHECK_THROWS_WITH_AS(test::run_plan(plan, options),
                         ((folder.path() / "ck/step-4").string() +
                          ": is of step 4, the training ends with step 3; --steps and --epochs count from the "
                          "beginning of the training, give more")
                             .c_str(),
                         Error);
  }

  TEST_CASE("an interrupted run leaves a checkpoint of its last step, and goes on to the same end") {
    for (const char* const schedule : {"1f1b", "pipedream"}) {
      CAPTURE(schedule);
      const bool streams = std::string_view(schedule) == "pipedream";
      const TestFolder folder;
      const plan::Plan plan = make_plan({.model = test::dropout_mlp(),
                                         .cuts = {3},
                                         .schedule = schedule,
                                         .mini_batch = streams ? 4 : 8,
                                         .micro_batches = streams ? 1 : 4});
      run::RunOptions options = options_for(30);
      options.checkpoint = folder.path() / "ck";
      options.evaluate = false;
      class Count : public test::SilentObserver {};
      Count observer;
      const run::RunReport report =
          test::run_checked(plan, options, observer, [&] { return observer.steps.size() >= 5; });
      CHECK(report.exit_reason == "interrupted");
      REQUIRE(report.steps >= 5);
      REQUIRE(report.steps < 30);
      CHECK(fs::exists(options.checkpoint / ("step-" + std::to_string(report.steps)) / "manifest.json"));
      options.resume = options.checkpoint;
      const test::Run rest = test::run_plan(plan, options);
      CHECK(rest.report.steps == 30 - report.steps);
      if (streams) continue;  // the drain at the interruption is part of the training
      CHECK(test::first_difference(test::train_alone(plan, options_for(30)).tensors, rest.tensors) == "");
    }
  }

  TEST_CASE("a damaged checkpoint is passed over with a warning, and the training ends the same") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    run::RunOptions options = options_for(5);
    options.checkpoint = folder.path() / "ck";
    options.checkpoint_steps = 2;
    test::run_plan(plan, options);
    const fs::path newest = options.checkpoint / "step-5";
    fs::resize_file(newest / "weights.safetensors", 17);
    options.resume = options.checkpoint;
    options.save_weights = folder.path() / "w.safetensors";
    options.steps = 7;
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(plan, options, observer);
    REQUIRE(report.resumed.has_value());
    CHECK(report.resumed->step == 4);
    CHECK(std::ranges::count_if(observer.warnings, [&](const std::string& text) {
            return text.starts_with("skipped " + (newest / "weights.safetensors").string() + ": 17 bytes");
          }) == 1);
    CHECK(test::first_difference(test::train_alone(plan, options_for(7)).tensors,
                                 run::read_weights(options.save_weights)) == "");
  }

  TEST_CASE("another number of micro-batches or learning rate is resumed with a line that says so") {
    const TestFolder folder;
    run::RunOptions options = options_for(2);
    options.checkpoint = folder.path() / "ck";
    test::run_plan(make_plan({.model = test::mlp(2), .cuts = {2}}), options);
    options.resume = options.checkpoint;
    options.steps = 4;
    options.learning_rate = 0.1;
    test::SilentObserver observer;
    test::run_checked(make_plan({.model = test::mlp(2), .cuts = {2}, .micro_batches = 2}), options, observer);
    REQUIRE_FALSE(observer.warnings.empty());
    CHECK(
        observer.warnings.back() ==
        "resumed with micro_batches 2 (was 4), learning_rate 0.1 (was 0.05): the training is no longer the one "
        "that was begun, bit for bit");
    CHECK_THROWS_WITH_AS(test::run_checked(make_plan({.model = test::mlp(3), .cuts = {2}}), options, observer),
                         doctest::Contains("is of another model"), Error);
    CHECK_THROWS_WITH_AS(
        test::run_checked(make_plan({.model = test::mlp(2), .cuts = {2}, .optimizer = OptimizerName::adamw}),
                          options, observer),
        doctest::Contains("has the optimizer sgd, this training adamw"), Error);
  }

  TEST_CASE("a memory limit is a setting of the report, and none of the training") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    run::RunOptions options = options_for(2);
    options.checkpoint = folder.path() / "ck";
    test::run_plan(plan, options);
    options.resume = options.checkpoint;
    options.steps = 4;
    options.memory_limit = Bytes(1 << 30);
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(plan, options, observer);
    CHECK(report.settings.at("memory_limit_bytes") == run::Setting(std::int64_t{1} << 30));
    CHECK(std::ranges::none_of(observer.warnings,
                               [](const std::string& text) { return text.starts_with("resumed with"); }));
  }

  TEST_CASE(
      "a checkpoint whose place is gone is one warning: the training goes on, all other checkpoints stand") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    run::RunOptions options = options_for(6);
    options.checkpoint = folder.path() / "ck";
    options.checkpoint_steps = 2;
    options.before_op = [&](std::int64_t step, WorkerId, const plan::Op&) {
      if (step == 3) fs::create_directories(options.checkpoint / "step-4/in-the-way");
    };
    test::SilentObserver observer;
    const run::RunReport report = test::run_checked(plan, options, observer);
    CHECK(report.exit_reason == "not_written");
    CHECK(report.steps == 6);
    const std::string folder_name = options.checkpoint.string();
    CHECK(std::ranges::count_if(observer.warnings, [&](const std::string& text) {
            return text.starts_with("checkpoint of step 4: " + folder_name + "/step-4: cannot be written: ") &&
                   text.ends_with("; make room, the last whole checkpoint is of step 2: --resume " +
                                  folder_name + " goes on from it");
          }) == 1);
    CHECK(fs::exists(options.checkpoint / "step-2/manifest.json"));
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(options.checkpoint))
      names.insert(entry.path().filename().string());
    CHECK(names == std::set<std::string>{".lock", "step-2", "step-4", "step-6"});
  }

  TEST_CASE("checkpoints by the clock are taken between steps and change nothing") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    run::RunOptions options = options_for(30);
    options.checkpoint = folder.path() / "ck";
    options.checkpoint_time = Seconds(1e-6);  // after every step that the driver sees
    const test::Run found = test::run_plan(plan, options);
    REQUIRE(found.report.checkpoints.has_value());
    CHECK(found.report.checkpoints->written > 2);
    CHECK(test::first_difference(test::train_alone(plan, options_for(30)).tensors, found.tensors) == "");
    const plan::Plan stream = make_plan({.model = test::mlp(3),
                                         .cuts = {2, 4},
                                         .replicas = {2, 1, 1},
                                         .schedule = "pipedream",
                                         .mini_batch = 4,
                                         .micro_batches = 1});
    options.checkpoint = folder.path() / "stream";
    CHECK(test::run_plan(stream, options).report.steps == 30);
  }

  TEST_CASE("a training begins with given weights, and draws what is missing") {
    const TestFolder folder;
    PlanSpec spec{.model = test::residual_net(), .cuts = {6}};
    run::RunOptions options = options_for(3);
    options.checkpoint = folder.path() / "ck";
    const test::Run first = test::run_plan(make_plan(spec), options);
    // Without an update the weights stay: from a file, and from a checkpoint's folder.
    options = options_for(1);
    options.learning_rate = 1e-300;
    options.weight_decay = 0;
    options.optimizer["momentum"] = 0;
    options.evaluate = false;
    const fs::path file = options.initial_weights = folder.path() / "ck/step-3/weights.safetensors";
    spec.cuts = {3, 9};
    const auto trained = [](const test::NamedTensors& all) {  // without running statistics
      test::NamedTensors some;
      for (const auto& entry : all) {
        if (entry.first.find("running") == std::string::npos) some.push_back(entry);
      }
      return some;
    };
    CHECK(test::first_difference(trained(first.tensors),
                                 trained(test::run_plan(make_plan(spec), options).tensors)) == "");
    options.initial_weights = folder.path() / "ck";
    CHECK(test::first_difference(trained(first.tensors),
                                 trained(test::run_plan(make_plan(spec), options).tensors)) == "");

    run::NamedTensors some = run::read_weights(file);
    const std::string left_out = some.front().first;
    some.erase(some.begin());
    const auto write = [&](const run::NamedTensors& tensors) {
      std::string bytes;
      run::write_safetensors(run::stored(tensors), [&](std::string_view piece) { bytes += piece; });
      return folder.write("some.safetensors", bytes);
    };
    options.initial_weights = write(some);
    test::SilentObserver observer;
    test::run_checked(make_plan(spec), options, observer);
    CHECK(std::ranges::count(observer.warnings, "1 tensor not in " + options.initial_weights.string() +
                                                    " and drawn from the seed: " + left_out) == 1);
    some.emplace_back("extra.weight", some.front().second);
    write(some);
    CHECK_THROWS_WITH_AS(test::run_checked(make_plan(spec), options, observer),
                         (options.initial_weights.string() +
                          ": tensor \"extra.weight\": is not in the model; leave such tensors out with "
                          "--ignore-unknown-weights")
                             .c_str(),
                         Error);
    options.ignore_unknown_weights = true;
    test::run_checked(make_plan(spec), options, observer);
    some.emplace_back("down_proj_blocks", at::ones({2}, at::kByte));
    write(some);
    CHECK_THROWS_WITH_AS(test::run_checked(make_plan(spec), options, observer),
                         (options.initial_weights.string() +
                          ": tensor \"down_proj_blocks\": is a quantized weight, which is not read; load the "
                          "model with transformers in bfloat16, and give what its save_pretrained writes")
                             .c_str(),
                         Error);
  }

  TEST_CASE("options of checkpoints that cannot be are refused before work") {
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    const auto refused = [&](auto change) -> std::string {
      run::RunOptions options = options_for(4);
      change(options);
      try {
        run::check(plan, options);
      } catch (const Error& error) {
        return error.what();
      }
      return "accepted";
    };
    CHECK(refused([](auto& o) { o.checkpoint_steps = 5; }) ==
          "--every is the time between checkpoints; give their folder with --checkpoint");
    CHECK(refused([](auto& o) { o.checkpoint = "x", o.checkpoint_steps = 0; }) ==
          "--every 0: must be at least 1 step");
    CHECK(
        refused([](auto& o) { o.checkpoint = "x", o.checkpoint_auto = true; }) ==
        "--every auto weighs what checkpoints cost against failures; say how often one of the machines fails, "
        "--mean-time-between-failures 12h");
    CHECK(refused([](auto& o) { o.checkpoint = "x", o.between_failures = Seconds(60); }) ==
          "--mean-time-between-failures is for --every auto, which chooses by it; add that, or leave it out");
    CHECK(refused([](auto& o) {
            o.checkpoint = "x", o.checkpoint_auto = true, o.between_failures = Seconds(0);
          }) == "--mean-time-between-failures 0 s: must be above 0");
    CHECK(refused([](auto& o) { o.checkpoint = "x", o.checkpoints_kept = 0; }) ==
          "keep = 0: must be at least 1");
    CHECK(refused([](auto& o) { o.resume = "nowhere"; }).starts_with("nowhere: no checkpoint to go on from"));
  }

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

  TEST_CASE("a step has at most the epoch's mini-batches, and its throughput is that of their samples") {
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    const test::Run four = test::run_plan(plan, options_of(4));
    for (const int more : {5, 1'000'000, std::numeric_limits<int>::max()}) {
      CAPTURE(more);
      const test::Run found = test::run_plan(plan, options_of(more));
      CHECK(test::first_difference(four.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == four.report.step_losses);
      CHECK(found.report.samples_per_s * found.report.step.count() == doctest::Approx(30));
    }
  }

  TEST_CASE(
      "a checkpoint of such a step says what it has, so that another number beyond the epoch resumes it") {
    const TestFolder folder;
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}, .mini_batch = 8});
    run::RunOptions options = options_of(1'000'000'000);  // times 8 more than an int
    const test::Run whole = test::run_plan(plan, options);
    options.checkpoint = folder.path() / "ck";
    options.steps = 1;
    test::SilentObserver observer;
    test::run_checked(plan, options, observer);
    CHECK(run::find_checkpoint(options.checkpoint).manifest.identity.mini_batch == 4 * 8);
    CHECK(whole.report.settings.at("accumulate") == run::Setting(std::int64_t{4}));
    options.resume = options.checkpoint;
    options.accumulate = 5;
    options.steps = 3;
    const test::Run resumed = test::run_plan(plan, options);
    CHECK(test::first_difference(whole.tensors, resumed.tensors) == "");
  }
}

}  // namespace resume_test
