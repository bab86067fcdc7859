// pp-run --keep-going: trainings whose process is lost, again and again.
#include "apps/run/keep_going/attempts.h"

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace {

namespace fs = std::filesystem;
using pp::Seconds;
using pp::test::Outcome;
using pp::test::RunFolder;
using Words = std::vector<std::string>;

const Words kJob{"plan.json",     "--data", "synthetic", "--synthetic-samples", "64", "--steps", "120",
                 "--no-evaluate", "--lr",   "0.05",      "--checkpoint",        "ck", "--every", "4"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// pp-run, whose processes are killed at their k-th rename of a part of a checkpoint
/// (tests/lab/faults/disk.cpp), and started by a shell that ignores SIGCHLD, as some daemons and containers do.
Outcome train_on_faulty_disk(const RunFolder& folder, int k, const Words& more) {
  const Words words =
      with({"-c", "trap '' CHLD; exec /usr/bin/env \"$@\"", "bash", "LD_PRELOAD=" PP_FAULTY_DISK,
            "PP_FAULT_FILE=/ck/.unfinished", "PP_FAULT_CALL=rename", "PP_FAULT_HOW=kill",
            "PP_FAULT_AFTER=" + std::to_string(k), pp::test::program("pp-run")},
           with(kJob, more));
  return pp::test::run_checked("/bin/bash", words, folder.path());
}

}  // namespace

TEST_SUITE("apps/keep_going") {
  TEST_CASE("starts follow at once as long as checkpoints are written, else later and later, then no more") {
    pp::run_tool::Patience patience(/*attempts=*/4);
    CHECK(patience.after_loss(false) == Seconds(1));
    CHECK(patience.after_loss(false) == Seconds(2));
    CHECK(patience.after_loss(true) == Seconds(0));
    CHECK(patience.after_loss(false) == Seconds(1));
    CHECK(patience.after_loss(false) == Seconds(2));
    CHECK(patience.after_loss(false) == Seconds(4));
    CHECK(!patience.after_loss(false));
    pp::run_tool::Patience long_one(/*attempts=*/20);
    for (int i = 0; i < 10; ++i) long_one.after_loss(false);
    CHECK(long_one.after_loss(false) == Seconds(60));
  }

  TEST_CASE(
      "who is lost: a refusal of a start that follows, failures before the first step, unreadable folders") {
    std::optional<std::int64_t> checkpoint;
    bool readable = true;
    std::vector<std::string> said;
    pp::run_tool::Attempts attempts({.attempts = 10,
                                     .last_checkpoint =
                                         [&] {
                                           if (!readable)
                                             throw pp::Error(pp::ErrorKind::run, "ck: Stale file handle");
                                           return checkpoint;
                                         },
                                     .say = [&](const std::string& line) { said.push_back(line); }});
    const auto lost = [&](pp::run_tool::ChildEnd end, std::int64_t done, const std::string& reason = "") {
      attempts.begin();
      return attempts.is_lost(end, done, /*ended=*/false, reason);
    };
    const auto goes_on = [&] { return attempts.pause(pp::run_tool::Circumstances::same).has_value(); };
    CHECK_FALSE(lost({.code = 2}, 0));
    checkpoint = 20;
    CHECK(lost({.signal = 9}, 23));
    CHECK(goes_on());
    CHECK(lost({.code = 2}, 20));
    CHECK(goes_on());
    readable = false;
    for (int i = 0; i < 2; ++i) {
      CHECK(lost({.code = 1}, 20));
      CHECK(goes_on());
    }
    CHECK(attempts.lost().back().checkpoint == 20);
    CHECK(said.front() == "ck: Stale file handle");
    CHECK(lost({.code = 1}, 24, "no route to host"));
    CHECK(goes_on());
    CHECK(lost({.code = 1}, 24, "the loss is nan"));
    CHECK(goes_on());
    CHECK(lost({.code = 1}, 24, "the loss is nan"));
    CHECK_FALSE(goes_on());
    CHECK(has(said.back(), "it failed at this step before, so it would again"));
  }

  TEST_CASE("a training whose processes are killed goes on to the bytes of one that is not") {
    const RunFolder folder;
    REQUIRE(pp::test::run_checked(pp::test::program("pp-run"),
                                  with(kJob, {"--save-weights", "whole", "--checkpoint", "other"}),
                                  folder.path())
                .code == 2);  // twice the same option is refused
    Words undisturbed = kJob;
    undisturbed[11] = "undisturbed";
    REQUIRE(pp::test::run_checked(pp::test::program("pp-run"), with(undisturbed, {"--save-weights", "whole"}),
                                  folder.path())
                .code == 0);
    // A checkpoint is two such renames, so each process writes 7 of the 30 and dies.
    const Outcome outcome = train_on_faulty_disk(
        folder, 14, {"--keep-going", "--save-weights", "weights", "-o", "report.json", "--metrics", "m.jsonl"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(pp::read_file(folder.path() / "weights") == pp::read_file(folder.path() / "whole"));
    CHECK(has(outcome.err, "the training was lost by signal 9 (Killed) after "));
    CHECK(has(outcome.err, "it goes on from the checkpoint of step "));
    CHECK(has(outcome.out, " lost (signal 9 (Killed), signal 9 (Killed)"));
    const pp::Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    const pp::Json& lost = report.at("lost_attempts");
    REQUIRE(lost.size() >= 2);
    std::int64_t before = 0;
    for (const pp::Json& attempt : lost) {
      CHECK(attempt.at("how") == "signal 9 (Killed)");
      CHECK(attempt.at("first_step") == before);
      CHECK(attempt.at("checkpoint_step") > before);
      CHECK(attempt.at("steps_done") >= attempt.at("checkpoint_step"));
      before = attempt.at("checkpoint_step");
    }
    CHECK(report.at("resumed_from").at("step") == before);
    CHECK(before + report.at("steps").get<std::int64_t>() == 120);
  }

  TEST_CASE("starts that write no checkpoint are not tried for ever") {
    const RunFolder folder;
    const Outcome outcome = train_on_faulty_disk(folder, 0, {"--keep-going", "--attempts", "2"});
    CHECK(outcome.code == 1);
    CHECK(has(outcome.err, "there is no checkpoint yet, so the training begins anew, in 1 s"));
    CHECK(has(outcome.err, "no checkpoint was written by 2 starts in a row, so this is the end (--attempts)"));
  }

  TEST_CASE("what was refused is not tried again") {
    const RunFolder folder;
    const Outcome refused = pp::test::run_checked(pp::test::program("pp-run"),
                                                  with(kJob, {"--keep-going", "--seed", "-1"}), folder.path());
    CHECK(refused.code == 2);
    CHECK(!has(refused.err, "was lost"));
  }

  TEST_CASE("a training that fails at the same step again is not tried a third time") {
    const RunFolder folder;
    Words too_fast = kJob;
    too_fast[9] = "1e30";  // of --lr
    const Outcome diverged =
        pp::test::run_checked(pp::test::program("pp-run"), with(too_fast, {"--keep-going"}), folder.path());
    CHECK(diverged.code == 1);
    CHECK(has(diverged.err, "the training was lost by exit code 1 after "));
    CHECK(has(diverged.err, "; it failed at this step before, so it would again"));
  }

  TEST_CASE("an interruption ends child and parent, with a checkpoint") {
    const RunFolder folder;
    Words words = kJob;
    words[6] = "1000000";
    const Outcome outcome =
        pp::test::run_checked(pp::test::program("pp-run"), with(words, {"--keep-going"}), folder.path(),
                              {.signal = SIGTERM, .signal_when = "training"});
    CHECK(outcome.code == 130);
    CHECK(has(outcome.err, "interrupted: the run ends with step "));
    CHECK(!has(outcome.err, "was lost"));
    CHECK(fs::exists(folder.path() / "ck"));
  }

  TEST_CASE("it is refused without checkpoints, with a plan that can be read once, and --attempts without it") {
    const RunFolder folder;
    const auto refusal = [&](const Words& words) {
      const Outcome outcome = pp::test::run_checked(pp::test::program("pp-run"), words, folder.path());
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(has(refusal({"plan.json", "--data", "synthetic", "--steps", "4", "--keep-going"}),
              "--keep-going: a training goes on from checkpoints; give their folder with --checkpoint DIR"));
    CHECK(has(refusal({"-", "--data", "synthetic", "--steps", "4", "--keep-going", "--checkpoint", "ck"}),
              "give files"));
    CHECK(has(refusal(with(kJob, {"--attempts", "2"})), "--attempts belongs to --keep-going; add that"));
  }
}
