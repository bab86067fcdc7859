// Trainings that are killed without warning, and faults of the disk that checkpoints meet.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace {

namespace fs = std::filesystem;
using pp::test::newest_checkpoint;
using pp::test::Outcome;
using pp::test::RunFolder;
using Arguments = std::vector<std::string>;

/// How often each training is killed; PP_KILLS=50 for a long trial.
int wanted_kills() {
  const char* const text = std::getenv("PP_KILLS");
  return text ? std::atoi(text) : 3;
}

struct Job {
  std::string name;
  PlanSpec plan;
  PlanSpec other;  ///< goes on in turn with it
};

std::vector<Job> jobs() {
  const PlanSpec flush{.cuts = {2}, .optimizer = pp::OptimizerName::adamw};
  PlanSpec other = flush;
  other.cuts = {1};
  other.schedule = "gpipe";
  PlanSpec stash{.cuts = {2}, .schedule = "pipedream", .mini_batch = 4, .micro_batches = 1};
  PlanSpec predict = stash;
  predict.schedule = "spectrain";
  PlanSpec two_buffered{.cuts = {2}, .schedule = "2bw", .mini_batch = 8, .micro_batches = 4};
  return {{"1f1b, on another plan gpipe", flush, other},
          {"stash", stash, stash},
          {"predict", predict, predict},
          {"2bw", two_buffered, two_buffered}};
}

Arguments training(const std::string& plan, const std::string& weights) {
  return {plan,
          "--steps",
          "120",
          "--no-evaluate",
          "--checkpoint",
          weights + "-ck",
          "--every",
          "4",
          "--momentum",
          "0.9",
          "--save-weights",
          weights,
          "-o",
          weights + ".json"};
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("apps/kill") {
  TEST_CASE("a training that is killed at any time and resumed ends with the bytes of one that is not") {
    for (const Job& job : jobs()) {
      CAPTURE(job.name);
      const RunFolder folder(job.plan);
      folder.write_plan("other.json", job.other);
      const bool adam = job.plan.optimizer == pp::OptimizerName::adamw;
      const auto arguments = [&](const std::string& plan, const std::string& weights) {
        Arguments all = training(plan, weights);
        if (adam) all.erase(std::ranges::find(all, "--momentum"), std::ranges::find(all, "--save-weights"));
        return all;
      };
      REQUIRE(folder.run(arguments("plan.json", "whole")).code == 0);
      std::mt19937 random(7);
      std::uniform_real_distribution<double> wait(0.1, 1.5);
      int kills = 0, finished = 0;
      for (int round = 0; kills < wanted_kills(); ++round) {
        REQUIRE(round < 40 * wanted_kills());
        const std::string name = "cut" + std::to_string(finished);
        Arguments all = arguments(kills % 2 == 0 ? "plan.json" : "other.json", name);
        if (has_checkpoint(folder.path() / (name + "-ck"))) all.insert(all.end(), {"--resume", name + "-ck"});
        const Outcome outcome = folder.run_for(wait(random), all);
        const bool killed = outcome.code == 128 + SIGKILL || outcome.code == 137;
        INFO(outcome.err);
        CHECK((killed || outcome.code == 0));
        kills += killed ? 1 : 0;
        if (killed) continue;
        CHECK(pp::read_file(folder.path() / name) == pp::read_file(folder.path() / "whole"));
        ++finished;
      }
      const std::string name = "cut" + std::to_string(finished);
      Arguments last = arguments("plan.json", name);
      if (has_checkpoint(folder.path() / (name + "-ck"))) last.insert(last.end(), {"--resume", name + "-ck"});
      CHECK(folder.run(last).code == 0);
      CHECK(pp::read_file(folder.path() / name) == pp::read_file(folder.path() / "whole"));
    }
  }

  TEST_CASE("a disk that is full ends no training: each checkpoint is a warning, and the exit code is 1") {
    // A file may have 4 blocks of 512 bytes, a checkpoint's weights need more.
    const RunFolder folder({.cuts = {2}}, 64);
    const Outcome outcome = folder.run_limited(
        /*blocks=*/4, {"plan.json", "--steps", "20", "--no-evaluate", "--checkpoint", "ck", "--every", "5"});
    CHECK(outcome.code == 1);
    for (const char* const step : {"5", "10", "15", "20"})
      CHECK(outcome.err.find("checkpoint of step " + std::string(step) + ": ck/.unfinished-step-" + step +
                             "/weights.safetensors: cannot be written: File too large; make room, there is no "
                             "checkpoint to go on from\n") != std::string::npos);
    CHECK(outcome.out.find("20 steps, not_written") != std::string::npos);
    for (const auto& entry : fs::directory_iterator(folder.path() / "ck"))
      CHECK(entry.path().filename() == ".lock");
  }

  TEST_CASE("a job says the same each time it is started: it begins, then goes on from its own checkpoints") {
    const RunFolder folder;
    const auto start = [&](const std::string& steps, const Arguments& more) {
      Arguments all{"plan.json", "--no-evaluate", "--steps", steps, "--initial-weights", "w0"};
      all.insert(all.end(), more.begin(), more.end());
      return folder.run(all);
    };
    REQUIRE(folder.run({"plan.json", "--no-evaluate", "--steps", "3", "--seed", "5", "--save-weights", "w0"})
                .code == 0);
    REQUIRE(start("12", {"--save-weights", "whole"}).code == 0);
    const Arguments job{"--checkpoint", "ck", "--resume", "ck", "--every", "4", "--save-weights", "w"};
    fs::create_directory(folder.path() /
                         "ck");  // as a start leaves it that is killed before its first checkpoint
    const Outcome first = start("8", job);
    CHECK(first.code == 0);
    CHECK(first.err.find("ck: has no checkpoint yet, so the training begins anew\n") != std::string::npos);
    const Outcome second = start("12", job);
    CHECK(second.code == 0);
    CHECK(second.err.find("the weights are those of ck/step-8, not of w0\n") != std::string::npos);
    CHECK(pp::read_file(folder.path() / "w") == pp::read_file(folder.path() / "whole"));
    // Another folder without a checkpoint was not meant.
    CHECK(start("12", {"--checkpoint", "other", "--resume", "nowhere"}).code == 2);
  }

  // The job writes a checkpoint after each step, so that it is nearly always at one. Behind its end nothing
  // holds the folder, whether it was asked to end or killed.
  TEST_CASE("a training that is ended while it writes a checkpoint leaves the folder to its restart at once") {
    const std::string script =
        "\"$0\" \"$@\" & training=$!; until ls -d ck/.unfinished-* >/dev/null 2>&1; do kill -0 $training || "
        "exit 9; "
        "done; kill -$SIGNAL $training; wait $training";
    for (const auto& [signal, code] : {std::pair{"TERM", 130}, std::pair{"KILL", 128 + SIGKILL}}) {
      CAPTURE(std::string(signal));
      const RunFolder folder({.cuts = {2}}, /*width=*/4096);
      const auto job = [](const std::string& steps) {
        return Arguments{"plan.json", "--no-evaluate", "--steps", steps,     "--checkpoint",
                         "ck",        "--resume",      "ck",      "--every", "1"};
      };
      Arguments endless{"SIGNAL=" + std::string(signal), "/bin/sh", "-c", script, folder.tool().string()};
      const Arguments training = RunFolder::on_data(job("1000000"));
      endless.insert(endless.end(), training.begin(), training.end());
      CHECK(pp::test::run_checked("/usr/bin/env", endless, folder.path()).code == code);
      const Outcome restart = folder.run(job(std::to_string(newest_checkpoint(folder.path() / "ck") + 3)));
      CAPTURE(restart.err);
      CHECK(restart.code == 0);
    }
  }

  TEST_CASE("what cannot be resumed is said with exit code 2 before any work") {
    const RunFolder folder;
    const Outcome nothing = folder.run({"plan.json", "--steps", "4", "--resume", "nowhere"});
    CHECK(nothing.code == 2);
    CHECK(nothing.err ==
          "pp-run: error: nowhere: no checkpoint to go on from; give the folder of --checkpoint\n");
    REQUIRE(folder.run({"plan.json", "--steps", "4", "--no-evaluate", "--checkpoint", "ck"}).code == 0);
    const Outcome again = folder.run({"plan.json", "--steps", "4", "--no-evaluate", "--checkpoint", "ck"});
    CHECK(again.code == 2);
    CHECK(again.err.find("ck: has a checkpoint of step 4; go on from it with --resume ck") !=
          std::string::npos);
    const Outcome every = folder.run({"plan.json", "--steps", "4", "--checkpoint", "other", "--every", "soon"});
    CHECK(every.code == 2);
    CHECK(every.err.find("--every") != std::string::npos);
    CHECK_FALSE(fs::exists(folder.path() / "other"));
  }
}
