// pp-run launch --keep-going: hosts that are lost, come back and flap, with a stand-in for mpirun
// (tests/support/one_rank_mpirun.sh), and with mpirun on two network namespaces.
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "tests/apps/run_folder.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace launch_keep_going_test {
namespace {

namespace fs = std::filesystem;
using pp::test::Outcome;
using Words = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const Words kTraining{"--data",          "synthetic", "--no-evaluate", "--checkpoint", "ck", "--every", "8",
                      "--stall-timeout", "2s"};

/// A small model with its profile, a plan of two stages on the nodes a and b, and the hosts of these names.
struct FleetFolder : pp::test::TemporaryFolder {
  explicit FleetFolder(const std::string& hosts = "a slots=1\nb slots=1\n") {
    tool("pp-profile", {"models", "mlp:inputs=16,width=16", "-o", "model.json"});
    tool("pp-profile", {"run", "model.json", "--quick", "--budget", "50ms", "--micro-batch-sizes", "4", "-q",
                        "-o", "profile.json"});
    tool("pp-plan", {"profile.json", "--levels", "1@1GB/s,2@1GB/s", "--mini-batch", "16", "--micro-batches",
                     "4", "--schedule", "1f1b", "--replicas", "1-1", "-q", "-o", "plan.json"});
    pp::write_file(path() / "hosts.txt", hosts);
    fs::copy_file(pp::test::repository("tests/support/one_rank_mpirun.sh"), path() / "mpirun");
  }
  Outcome tool(const std::string& name, const Words& arguments) const {
    const Outcome outcome = pp::test::run_program(pp::test::program(name), arguments, path());
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return outcome;
  }
  /// With these events (see the stand-in), `options` of launch and more of the training's; by a shell that
  /// ignores SIGCHLD, as some daemons and containers do.
  Outcome launch(const std::string& events, const Words& options, const Words& more) const {
    pp::write_file(path() / "events", events);
    Words words{"-c",
                "trap '' CHLD; exec /usr/bin/env \"$@\"",
                "sh",
                "PATH=" + path().string() + ":/usr/bin:/bin",
                pp::test::program("pp-run"),
                "launch",
                "plan.json",
                "--hosts",
                "hosts.txt",
                "--launcher",
                "mpirun",
                "--keep-going"};
    for (const Words& part : {options, Words{"--"}, kTraining, more})
      words.insert(words.end(), part.begin(), part.end());
    return pp::test::run_program("/bin/bash", words, path());
  }
  /// Weights after so many steps of one process that nobody disturbs.
  std::string undisturbed(int steps) const {
    tool("pp-run", {"plan.json", "--data", "synthetic", "--no-evaluate", "--steps", std::to_string(steps),
                    "--save-weights", "whole"});
    return read("whole");
  }
  /// The same going on from the folder ck.
  std::string resumed(int steps) const {
    tool("pp-run", {"plan.json", "--data", "synthetic", "--no-evaluate", "--steps", std::to_string(steps),
                    "--resume", "ck", "--save-weights", "resumed"});
    return read("resumed");
  }
  std::string read(const std::string& name) const { return pp::read_file(path() / name); }
};

const Words kProfile{"--profile", "profile.json"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// What happens on the first of two hosts: the other is taken away and brought back as the training goes on.
const std::string kJob = R"sh(
newest() { find ck -name 'step-*' 2>/dev/null | sed -n 's/.*step-0*//p' | sort -n | tail -n 1; }
until_more_than() { until [ "$(newest)" -gt "$1" ] 2>/dev/null || ! kill -0 $job; do sleep 0.1; done; }
"$1" launch plan.json --hosts "$PP_HOSTS" --keep-going --profile profile.json --rejoin 200ms -- \
  --data synthetic --no-evaluate --checkpoint ck --every 8 --stall-timeout 2s --steps 1000000 &
job=$!
until_more_than 8
"$PP_TAKE" away 10.77.0.2
until [ -e ck/launch/plan-2.json ] || ! kill -0 $job; do sleep 0.1; done
until_more_than $(($(newest) + 8))
"$PP_TAKE" back 10.77.0.2
until [ "$(grep -c '"how"' ck/launch/lost.json)" = 2 ] || ! kill -0 $job; do sleep 0.1; done
until_more_than $(($(newest) + 8))
kill -INT $job
wait $job
)sh";

/// Four ranks on this host, of which one is killed twice.
const std::string kKilledRanks = R"sh(
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
newest() { find ck -maxdepth 1 -name 'step-*' 2>/dev/null | sed -n 's/.*step-0*//p' | sort -n | tail -n 1; }
ranks() { for p in $(pgrep -P "$1"); do ranks $p; ps -o args= $p | grep -q '^[^ ]*pp-run train .*--launch-state' && echo $p; done; }
"$1" launch plan.json --hosts hosts.txt --keep-going -- --data synthetic --no-evaluate --checkpoint ck \
  --every 8 --steps 3000 --save-weights weights -o report.json &
job=$!
for loss in 1 2; do
  before=$(newest)
  until [ "$(newest)" -gt "${before:-8}" ] 2>/dev/null || ! kill -0 $job; do sleep 0.05; done
  kill -KILL "$(ranks $job | tail -n 1)"
  sleep 1
done
wait $job
)sh";

}  // namespace

TEST_SUITE("apps/launch_keep_going") {
  TEST_CASE("a host is lost: the training goes on with the other, to the bytes of one that nobody disturbs") {
    const FleetFolder folder;
    const Outcome outcome = folder.launch(
        "16 away b\n", kProfile, {"--steps", "2000", "--save-weights", "weights", "-o", "report.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(folder.read("starts") == "a,b\na\n");
    CHECK(folder.read("weights") == folder.undisturbed(2000));
    // What was lost, the new plan, what it promises: three layers of a linear and two relus in one stage.
    CHECK(has(outcome.err, "the training was lost by signal 9 (Killed) after "));
    CHECK(has(outcome.err, "; host b does not answer\n"));
    CHECK(has(outcome.err,
              "the plan on a: 1f1b, layers per stage 5, replicas 1, 16 samples in 4 micro-batches "
              "(ck/launch/plan-2.json)\n"));
    CHECK(has(outcome.err, "it promises "));
    CHECK(has(outcome.err,
              " on a device; as many micro-batches as before, so the weights keep their bits; it goes on from "
              "the checkpoint of step "));
    CHECK(has(outcome.err, "pp-run: info: 2 starts, "));

    const pp::Json report = pp::parse_json(folder.read("report.json"));
    REQUIRE(report["lost_attempts"].size() == 1);
    const pp::Json& lost = report["lost_attempts"][0];
    const std::string plan = lost["plan"];
    CHECK(plan.starts_with("1f1b, layers per stage "));
    CHECK(lost["hosts"] == "a, b");
    CHECK(lost["to_next_s"] > 0);
    CHECK(lost["first_step"] == 0);
    CHECK(lost["checkpoint_step"] >= 16);
    CHECK(lost["steps_done"] >= lost["checkpoint_step"]);
    CHECK_FALSE(has(plan, report["plan_hash"]));
    CHECK(report["resumed_from"]["step"] == lost["checkpoint_step"]);
    CHECK(has(outcome.out, "1 start lost (signal 9 (Killed)): "));
  }

  TEST_CASE("with --rejoin it comes back to both hosts at a checkpoint, and leaves out one that flaps") {
    const FleetFolder folder;
    const Outcome outcome = folder.launch("8 away b\n8 back b\n8 away b\n8 back b\n8 away b\n8 stop\n",
                                          with(kProfile, {"--rejoin", "50ms"}), {"--steps", "1000000"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 130);
    CHECK(folder.read("starts") == "a,b\na\na,b\na\na,b\na\n");
    CHECK(has(outcome.err, "host b is back; the training stops with a checkpoint for 1f1b, layers per stage "));
    CHECK(has(outcome.err, "; host b does not answer, for the third time: it is left out from now on\n"));
    const int end = pp::test::newest_checkpoint(folder.path() / "ck") + 5;
    CHECK(folder.resumed(end) == folder.undisturbed(end));
  }

  TEST_CASE("a host that the plan does not need stands in for one that is lost, under the same plan") {
    const FleetFolder folder("a slots=1\nb slots=1\nc slots=1\n");
    const Outcome outcome = folder.launch("16 away a\n", {}, {"--steps", "2000", "--save-weights", "weights"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(folder.read("starts") == "a,b\nc,b\n");
    CHECK(has(outcome.err, "the plan stays, on b, c: 1f1b, "));
    CHECK(folder.read("weights") == folder.undisturbed(2000));
    CHECK_FALSE(fs::exists(folder.path() / "ck/launch/plan-2.json"));
  }

  TEST_CASE(
      "ranks are killed on hosts that answer: the same start again, for as long as it writes checkpoints") {
    const FleetFolder folder;
    const Outcome outcome =
        folder.launch("8 kill\n0 kill\n0 kill\n", with(kProfile, {"--attempts", "2"}), {"--steps", "2000"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(folder.read("starts") == "a,b\na,b\na,b\n");
    CHECK(has(outcome.err, "; it goes on from the checkpoint of step "));
    CHECK(has(outcome.err, "no checkpoint was written by 2 starts in a row, so this is the end (--attempts)"));
  }

  TEST_CASE("a launcher that fails, and a start that finds the machine otherwise, are tried again") {
    const FleetFolder folder;
    const Outcome outcome =
        folder.launch("8 kill\n- exit 1\n- exit 1\n- exit 2\n", with(kProfile, {"--attempts", "10"}),
                      {"--steps", "2000", "--save-weights", "weights"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(folder.read("starts") == "a,b\na,b\na,b\na,b\na,b\n");
    CHECK(folder.read("weights") == folder.undisturbed(2000));
  }

  TEST_CASE("it ends with the reason where no plan fits what is left, and where no host answers") {
    const FleetFolder folder;
    const Outcome unplanned = folder.launch("8 away b\n", {}, {"--steps", "2000"});
    CHECK(unplanned.code == 3);
    CHECK(has(unplanned.err,
              "no plan fits what is left (a): the plan does not fit what is left, and without "
              "the profile that it was made from there is no other; give it with --profile FILE"));
    pp::write_file(folder.path() / "away-a", "");
    fs::remove(folder.path() / "starts");
    const Outcome nobody =
        folder.launch("0 kill\n", with(kProfile, {"--attempts", "1"}), {"--steps", "60", "--resume", "ck"});
    CHECK(nobody.code == 1);
    CHECK(has(nobody.err, "no host answers, so this is the end"));
  }

  TEST_CASE("what is refused is not tried again, and options that belong together are asked for") {
    const FleetFolder folder;
    const Outcome refused = folder.launch("", kProfile, {"--steps", "60", "--seed", "-1"});
    CHECK(refused.code == 2);
    CHECK_FALSE(has(refused.err, "was lost"));
    CHECK(folder.read("starts") == "a,b\n");
    const auto refusal = [&](const Words& words) {
      const Outcome outcome =
          pp::test::run_program(pp::test::program("pp-run"),
                                with({"launch", "plan.json", "--hosts", "hosts.txt"}, words), folder.path());
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(has(refusal({"--spare", "1"}), "--spare belongs to --keep-going; add that"));
    CHECK(has(refusal({"--keep-going", "--", "--steps", "4"}),
              "give their folder with --checkpoint DIR behind --"));
  }

  TEST_CASE("devices that are slower than planned: the ranks go on with a plan for their speeds") {
    const FleetFolder folder;
    // A plan that promises a tenth of what worker 1 takes, as if its device were slow.
    pp::Json plan = pp::parse_json(folder.read("plan.json"));
    pp::Json& busy = plan["predicted"]["workers"][1]["busy_s"];
    busy = busy.get<double>() / 10;
    pp::write_file(folder.path() / "plan.json", pp::dump_json(plan));
    const Outcome outcome =
        folder.launch("\n8 stop\n", with(kProfile, {"--rebalance", "1h"}), {"--steps", "1000000000"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 130);
    CHECK(folder.read("starts") == "a,b\na\n");  // five layers are too few for a device of a tenth
    CHECK(has(outcome.err, "device cpu:0 on b (worker 1) takes "));
    CHECK(has(outcome.err, "device cpu:0 on b takes "));
    CHECK(has(outcome.err, "the plan on a, b: 1f1b, layers per stage "));
    CHECK(has(outcome.err, "it promises "));
    CHECK(has(outcome.err, "; it goes on from the checkpoint of step "));
    const pp::Json lost = pp::parse_json(folder.read("ck/launch/lost.json"))["lost_attempts"];
    REQUIRE(lost.size() == 1);
    CHECK(has(lost[0]["how"], "times as long as planned"));
    CHECK(lost[0]["steps_done"] == lost[0]["checkpoint_step"]);
    const int end = pp::test::newest_checkpoint(folder.path() / "ck") + 5;
    CHECK(folder.resumed(end) == folder.undisturbed(end));
  }

  TEST_CASE(
      "ranks that are killed go on from their checkpoints, to the bytes of a training that nobody disturbs") {
    if (std::string_view(PP_MPIRUN).empty()) return pp::test::skip("built without MPI");
    const FleetFolder folder("localhost slots=2\n");
    fs::remove(folder.path() / "mpirun");
    folder.tool("pp-plan",
                {"profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "16",
                 "--micro-batches", "4", "--schedule", "1f1b", "--replicas", "1-1", "-q", "-o", "plan.json"});
    pp::write_file(folder.path() / "job.sh", kKilledRanks);
    const Outcome outcome =
        pp::test::run_program("/bin/bash", {"job.sh", pp::test::program("pp-run")}, folder.path());
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(folder.read("weights") == folder.undisturbed(3000));
    const pp::Json report = pp::parse_json(folder.read("report.json"));
    REQUIRE(report["lost_attempts"].size() == 2);
    for (const pp::Json& lost : report["lost_attempts"]) CHECK(lost["checkpoint_step"] > 0);
    CHECK(pp::test::newest_checkpoint(folder.path() / "ck") == 3000);
  }

  // The second host is unplugged and its processes killed. Rank 0 hears nothing of rank 1 for 2 s and ends;
  // Open MPI would wait for its daemon there.
  TEST_CASE("two network namespaces: one is taken away, the job goes on with the other and returns to both") {
    if (std::string_view(PP_MPIRUN).empty()) return pp::test::skip("built without MPI");
    const FleetFolder folder;
    fs::remove(folder.path() / "mpirun");
    pp::write_file(folder.path() / "job.sh", kJob);
    const Outcome outcome = pp::test::run_program(
        "/usr/bin/python3",
        {pp::test::repository("scripts/support/two_hosts.py"), "bash", "job.sh", pp::test::program("pp-run")},
        folder.path());
    if (outcome.code == 77) return pp::test::skip(outcome.err);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 130);
    CHECK(has(outcome.err, "; host 10.77.0.2 does not answer\n"));
    CHECK(has(outcome.err, "the plan on 10.77.0.1: 1f1b, layers per stage 5, "));
    CHECK(has(outcome.err, "host 10.77.0.2 is back; "));
    CHECK(has(outcome.err, "the plan on 10.77.0.1, 10.77.0.2: "));
    const pp::Json state = pp::parse_json(folder.read("ck/launch/lost.json"));
    const pp::Json& lost = state["lost_attempts"];
    REQUIRE(lost.size() == 2);
    CHECK(lost[0]["hosts"] == "10.77.0.1, 10.77.0.2");
    CHECK(lost[1]["hosts"] == "10.77.0.1");
    CHECK(lost[1]["steps_done"] == lost[1]["checkpoint_step"]);  // stopped with a checkpoint
    const int end = pp::test::newest_checkpoint(folder.path() / "ck") + 5;
    CHECK(folder.resumed(end) == folder.undisturbed(end));
  }
}

}  // namespace launch_keep_going_test
