// pp-run under mpirun: the bits of one process, one voice, and how a job of several processes ends.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/lab/fuzz/random.h"
#include "tests/support/rank_cases.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace ranks_test {
namespace {

namespace fs = std::filesystem;
using pp::test::newest_checkpoint;
using pp::test::Outcome;
using pp::test::RankCase;
using Arguments = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool without_mpi() {
  if (std::string_view(PP_MPIRUN).empty()) pp::test::skip("built without MPI");
  return std::string_view(PP_MPIRUN).empty();
}

/// A plan, run by one process or by several.
struct RankFolder : pp::test::TemporaryFolder {
  explicit RankFolder(const PlanSpec& spec) {
    const pp::plan::Plan plan = make_plan(spec);
    mini_batch = plan.training.mini_batch;
    pp::write_file(path() / "plan.json", pp::dump_json(pp::plan::to_json(plan)));
  }
  Arguments training(const Arguments& more) const {
    Arguments all{
        "plan.json", "--data", "synthetic", "--synthetic-samples", std::to_string(12 * mini_batch), "--seed",
        "7",         "--lr",   "0.05"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome alone(const Arguments& more) const {
    return pp::test::run_checked(pp::test::RunFolder::tool(), training(more), path());
  }
  /// `env` says yes to Open MPI's questions: root may start ranks, more of them than cores. At its end Open MPI
  /// keeps memory that AddressSanitizer would call leaked.
  Outcome on(int ranks, const Arguments& more, const Arguments& in_front = {}) const {
    Arguments all{"OMPI_ALLOW_RUN_AS_ROOT=1",
                  "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                  "OMPI_MCA_rmaps_base_oversubscribe=1",
                  "ASAN_OPTIONS=detect_leaks=0",
                  PP_MPIRUN,
                  "-n",
                  std::to_string(ranks)};
    all.insert(all.end(), in_front.begin(), in_front.end());
    all.push_back(pp::test::RunFolder::tool().string());
    const Arguments what = training(more);
    all.insert(all.end(), what.begin(), what.end());
    return pp::test::run_checked("/usr/bin/env", all, path());
  }
  /// The same, where this rank kills itself: `signal` once the shell's command `wait` has ended.
  Outcome with_signal(int ranks, int rank, const std::string& signal, const std::string& wait,
                      const Arguments& more) const {
    const std::string script = "if [ \"$OMPI_COMM_WORLD_RANK\" = " + std::to_string(rank) + " ]; then (" +
                               wait + "; kill -" + signal + " $$) & fi; exec \"$0\" \"$@\"";
    return on(ranks, more, {"/bin/sh", "-c", script});
  }

  int mini_batch = 0;
};

PlanSpec three_stages() {
  PlanSpec spec{.model = pp::test::mlp(3)};
  spec.cuts = {2, 4};
  return spec;
}

/// Four replicas of a whole model around a server.
PlanSpec served(const std::string& schedule) {
  PlanSpec spec{.model = pp::test::mlp(3)};
  spec.replicas = {4};
  spec.schedule = schedule;
  spec.micro_batches = 1;
  return spec;
}

bool all_wanted() {
  const char* const text = std::getenv("PP_RANKS");
  return text && std::string_view(text) == "all";
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// Until the folder ck has a checkpoint of a later step: however fast the machine is, the training has gone on.
std::string wait_for_checkpoint_after(int step) {
  return "until [ \"$(ls ck | sed -n 's/^step-0*//p' | sort -n | tail -n 1)\" -gt " + std::to_string(step) +
         " ] 2>/dev/null; do kill -0 $$ || exit; sleep 0.1; done";
}

/// One of the six pairs of ranks and workers a rank for each schedule, in turn; all with PP_RANKS=all.
std::vector<RankCase> wanted_cases() {
  std::vector<RankCase> all = pp::test::rank_cases(), some;
  if (all_wanted()) return all;
  std::string schedule;
  std::size_t first = 0, turn = 0;
  for (std::size_t i = 0; i <= all.size(); ++i) {
    if (i < all.size() && all[i].spec.schedule == schedule) continue;
    if (i > first) some.push_back(all[first + turn++ % (i - first)]);
    first = i;
    if (i < all.size()) schedule = all[i].spec.schedule;
  }
  return some;
}

}  // namespace

TEST_SUITE("apps/ranks") {
  TEST_CASE("every schedule under mpirun writes the weights of one process, byte for byte") {
    if (without_mpi()) return;
    const std::vector<RankCase> cases = wanted_cases();
    CHECK(cases.size() >= 21);
    for (const RankCase& one : cases) {
      CAPTURE(one.name);
      const RankFolder folder(one.spec);
      const Outcome alone = folder.alone({"--steps", "12", "--save-weights", "alone", "-o", "alone.json"});
      CAPTURE(alone.err);
      REQUIRE(alone.code == 0);
      const Outcome outcome =
          folder.on(one.ranks, {"--steps", "12", "--save-weights", "ranks", "-o", "ranks.json"});
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      CHECK(pp::read_file(folder.path() / "ranks") == pp::read_file(folder.path() / "alone"));
      const auto losses = [&](const char* name) {
        return pp::parse_json(pp::read_file(folder.path() / name))["step_losses"];
      };
      CHECK(losses("ranks.json") == losses("alone.json"));
    }
  }

  // Stages of four replicas each: what all-reduces and a norm over all workers need crosses ranks.
  TEST_CASE("four stages of four replicas on sixteen ranks; with PP_RANKS=all sixteen stages on sixty-four") {
    if (without_mpi()) return;
    for (const int stages : {4, 16}) {
      if (stages > 4 && !all_wanted()) break;
      PlanSpec spec{.model = pp::test::mlp(stages), .mini_batch = 32, .micro_batches = 8};
      spec.cuts = pp::test::equal_cuts(spec.model, stages);
      spec.replicas.assign(static_cast<std::size_t>(stages), 4);
      const RankFolder folder(spec);
      const Arguments what{"--steps", "4", "--clip-norm", "0.5", "--save-weights"};
      const auto writes = [&](const char* file) {
        Arguments all = what;
        all.emplace_back(file);
        return all;
      };
      REQUIRE(folder.alone(writes("alone")).code == 0);
      const Outcome outcome = folder.on(4 * stages, writes("ranks"));
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      CHECK(pp::read_file(folder.path() / "ranks") == pp::read_file(folder.path() / "alone"));
      const Outcome refused = folder.on(4 * stages, {"--resume", "nowhere"});
      CHECK(refused.code == 2);
      CHECK(count_of(refused.err, "pp-run: error: ") == 1);
    }
  }

  TEST_CASE("one rank speaks: the placement, one summary, one report") {
    if (without_mpi()) return;
    const RankFolder folder(three_stages());
    const Outcome outcome = folder.on(2, {"--steps", "4", "-o", "r.json", "--trace", "t.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const std::string line = "pp-run: info: 3 workers on 2 ranks: 0 1, 2, in contiguous blocks\n";
    CHECK(count_of(outcome.err, line) == 1);
    CHECK(count_of(outcome.out, "4 steps, completed") == 1);
    const pp::Json report = pp::parse_json(pp::read_file(folder.path() / "r.json"));
    CHECK(report["workers"].size() == 3);
    CHECK(pp::read_file(folder.path() / "t.json").find("F2.0") != std::string::npos);
  }

  TEST_CASE("what no rank can do, and too many ranks, is said once with exit code 2") {
    if (without_mpi()) return;
    const RankFolder folder(three_stages());
    const Outcome many = folder.on(4, {"--steps", "4"});
    CHECK(many.code == 2);
    const std::string line =
        "pp-run: error: 4 ranks for 3 workers of the plan; start at most 3: mpirun -n 3 pp-run ...\n";
    CHECK(count_of(many.err, line) == 1);
    CHECK(count_of(many.err, "pp-run: error") == 1);
    const Outcome resumed = folder.on(2, {"--steps", "4", "--resume", "nowhere"});
    CHECK(resumed.code == 2);
    CHECK(has(resumed.err, "pp-run: error: nowhere: no checkpoint to go on from"));
  }

  // Twenty with PP_RANKS=all. A process that is killed or crashes is noticed by mpirun, one that hangs by the
  // others, in the midst of training or at the start, where they are given ten stall timeouts.
  TEST_CASE(
      "ranks killed, crashed and stopped at any time: the job ends and names them, and goes on from its "
      "checkpoint on as many ranks or others") {
    if (without_mpi()) return;
    const RankFolder folder(three_stages());
    const Arguments endless{"--no-evaluate", "--checkpoint", "ck", "--every", "20", "--stall-timeout", "2s"};
    const auto with = [&](const Arguments& more) {
      Arguments all = endless;
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    REQUIRE(folder.on(3, with({"--steps", "5"})).code == 0);
    pp::fuzz::Random random(19);
    const std::vector<std::string> signals{"KILL", "SEGV", "STOP"};
    for (int fault = 0; fault < (all_wanted() ? 20 : 3); ++fault) {
      const int ranks = random.integer(2, 3), rank = random.integer(0, ranks - 1);
      const std::string signal = signals[static_cast<std::size_t>(fault) % signals.size()];
      const std::string seconds =
          "sleep " + std::to_string(random.integer(0, 3)) + "." + std::to_string(random.integer(0, 9));
      CAPTURE(ranks);
      CAPTURE(rank);
      CAPTURE(signal);
      CAPTURE(seconds);
      const Outcome outcome =
          folder.with_signal(ranks, rank, signal, seconds, with({"--steps", "1000000", "--resume", "ck"}));
      CAPTURE(outcome.err);
      CHECK(outcome.code != 0);
      // Whoever hangs before it has met the others has no name yet.
      const bool nameless = has(outcome.err, ": the ranks have not met for 20 s; those that do not say so ");
      if (!nameless) CHECK(has(outcome.err, "rank " + std::to_string(rank)));
      if (signal == "STOP" && !nameless) CHECK(count_of(outcome.err, "pp-run: error") == 1);
    }
    const std::string end = std::to_string(newest_checkpoint(folder.path() / "ck") + 5);
    REQUIRE(folder.alone({"--steps", end, "--no-evaluate", "--save-weights", "whole"}).code == 0);
    for (const int ranks : {2, 3}) {
      const Outcome resumed =
          folder.on(ranks, {"--steps", end, "--no-evaluate", "--resume", "ck", "--save-weights", "w"});
      CAPTURE(resumed.err);
      REQUIRE(resumed.code == 0);
      CHECK(pp::read_file(folder.path() / "w") == pp::read_file(folder.path() / "whole"));
    }
  }

  TEST_CASE("replicas around a server under mpirun: one report, the weights of one process in a fixed order") {
    if (without_mpi()) return;
    for (const char* schedule : {"downpour", "ssp"}) {
      const RankFolder folder(served(schedule));
      const Arguments what{"--epochs", "3", "--momentum", "0", "--interleave", "5"};
      const auto writes = [&](const std::string& name) {
        Arguments all = what;
        all.insert(all.end(), {"--save-weights", name, "-o", name + ".json"});
        return all;
      };
      REQUIRE(folder.alone(writes("alone")).code == 0);
      for (const int ranks : {2, 4}) {
        const Outcome outcome = folder.on(ranks, writes("ranks"));
        CAPTURE(outcome.err);
        REQUIRE(outcome.code == 0);
        CHECK(count_of(outcome.out, "of the others' on average") == 1);
        CHECK(pp::read_file(folder.path() / "ranks") == pp::read_file(folder.path() / "alone"));
        const auto part = [&](const char* file, const char* key) {
          return pp::parse_json(pp::read_file(folder.path() / file))[key];
        };
        for (const char* key : {"replicas", "step_losses"})
          CHECK(part("ranks.json", key) == part("alone.json", key));
      }
    }
  }

  TEST_CASE("a replica's rank that is killed or hangs is named, and the training goes on from its checkpoint") {
    if (without_mpi()) return;
    const RankFolder folder(served("downpour"));
    const Arguments endless{"--momentum", "0",  "--no-evaluate",   "--checkpoint", "ck",
                            "--every",    "20", "--stall-timeout", "2s",           "--steps"};
    const auto with = [&](const Arguments& more) {
      Arguments all = endless;
      all.insert(all.end(), more.begin(), more.end());
      return all;
    };
    REQUIRE(folder.on(2, with({"40"})).code == 0);
    for (const std::string signal : {"KILL", "STOP"}) {
      CAPTURE(signal);
      const Outcome outcome =
          folder.with_signal(4, 2, signal, wait_for_checkpoint_after(newest_checkpoint(folder.path() / "ck")),
                             with({"1000000", "--resume", "ck"}));
      CAPTURE(outcome.err);
      CHECK(outcome.code == (signal == "KILL" ? 137 : 1));  // mpirun's own answer to a process that is killed
      CHECK(has(outcome.err, "rank 2"));
    }
    const int newest = newest_checkpoint(folder.path() / "ck");
    CHECK(newest > 40);
    const Outcome resumed = folder.on(3, with({std::to_string(newest + 8), "--resume", "ck"}));
    CAPTURE(resumed.err);
    CHECK(resumed.code == 0);
  }

  TEST_CASE("an interrupted training with a server writes its report and ends with exit code 130") {
    if (without_mpi()) return;
    const RankFolder folder(served("downpour"));
    const Outcome outcome = folder.with_signal(2, 0, "INT", wait_for_checkpoint_after(0),
                                               {"--momentum", "0", "--steps", "1000000", "--no-evaluate",
                                                "--checkpoint", "ck", "--every", "20", "-o", "r.json"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 130);
    CHECK(pp::parse_json(pp::read_file(folder.path() / "r.json"))["exit_reason"] == "interrupted");
  }

  // Between processes of one host Open MPI sends up to 4 KiB at once, and more when the receiver has room:
  // messages have 128 rows of 16 floats, 8 KiB, and rank 1's letter of weights 20,000 * 17 floats, 1.3 MiB.
  TEST_CASE("messages and letters beyond the eager size arrive: the weights of one process") {
    if (without_mpi()) return;
    PlanSpec spec{.cuts = {2}, .mini_batch = 256, .micro_batches = 2};
    spec.model = pp::test::small_model(8);
    spec.model.layers.back().attributes["out_features"] = std::int64_t{20'000};
    const RankFolder folder(spec);
    const Arguments what{"--steps", "3", "--no-evaluate", "--clip-norm", "1", "--save-weights"};
    const auto writes = [&](const char* file) {
      Arguments all = what;
      all.emplace_back(file);
      return all;
    };
    REQUIRE(folder.alone(writes("alone")).code == 0);
    const Outcome outcome = folder.on(2, writes("ranks"));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(pp::read_file(folder.path() / "ranks") == pp::read_file(folder.path() / "alone"));
  }
}

}  // namespace ranks_test
