// Two hosts, which are namespaces of this machine: a link of a known rate and delay, clocks that differ.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/librun/models.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace hosts_test {
namespace {

using pp::test::Outcome;
using Words = std::vector<std::string>;

const std::string kBin = pp::test::program();

struct HostsFolder : pp::test::TemporaryFolder {
  /// A shell's command line on the first host; `options` of two_hosts.py.
  Outcome on_hosts(const std::string& line, Words options = {}) const {
    options.insert(options.begin(), pp::test::repository("scripts/support/two_hosts.py"));
    options.insert(options.end(), {"sh", "-c", line});
    return pp::test::run_checked("/usr/bin/python3", options, path());
  }
  Outcome tool(const std::string& name, const Words& arguments) const {
    return pp::test::run_checked(kBin + "/" + name, arguments, path());
  }
  pp::Json json(const std::string& file) const { return pp::parse_json(pp::read_file(path() / file)); }
};

/// Whether this machine lets nobody make hosts, which is said.
bool without_hosts(const Outcome& outcome) {
  if (outcome.code != 77) return false;
  pp::test::skip(outcome.err.substr(std::string("SKIPPED: ").size()));
  return true;
}

bool without_mpi() {
  if (std::string_view(PP_MPIRUN).empty()) pp::test::skip("built without MPI");
  return std::string_view(PP_MPIRUN).empty();
}

/// Bytes that cross the cut in a step, both ways.
std::int64_t sent(const pp::plan::Plan& plan) {
  std::int64_t bytes = 0;
  for (const pp::plan::LinkPrediction& link : plan.predicted.links) bytes += link.bytes_per_step.value;
  return bytes;
}

}  // namespace

TEST_SUITE("apps/hosts") {
  TEST_CASE("a link of 1 Gbit/s and 1 ms is measured as such, and plans send less over it") {
    if (without_mpi()) return;
    const HostsFolder folder;
    const Outcome measured = folder.on_hosts("exec " PP_MPIRUN " -n 2 --hostfile $PP_HOSTS " + kBin +
                                             "/pp-profile links --largest 1MiB -q -o slow.json");
    if (without_hosts(measured)) return;
    CAPTURE(measured.err);
    REQUIRE(measured.code == 0);
    const pp::Cluster cluster = pp::parse_cluster(pp::read_file(folder.path() / "slow.json"));
    REQUIRE(cluster.devices.size() == 2);
    CHECK(cluster.devices[0].node == "host-a");
    CHECK(cluster.devices[1].node == "host-b");
    REQUIRE(cluster.levels.size() == 1);
    CHECK(cluster.levels[0].name == "cluster");
    CHECK(cluster.levels[0].latency.count() == doctest::Approx(1e-3).epsilon(0.1));
    CHECK(cluster.levels[0].bandwidth.value == doctest::Approx(125e6).epsilon(0.1));

    // Eight equal layers, 12 ms for half of them and 16 samples. In the middle 2 MiB cross the cut, 17.8 ms
    // over this link; behind the sixth layer 16 KiB.
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(8, 1.0));
    for (std::size_t l = 0; l < profile.layers.size(); ++l) {
      for (pp::LayerPoint& point : profile.layers[l].points)
        point.output = pp::Bytes(point.micro_batch_size * (l == 5 ? 1 << 10 : 1 << 17));
    }
    pp::test::write_profile(folder.path(), profile);
    const auto plan = [&](Words links, const std::string& file) {
      Words words{"profile.json",
                  "--mini-batch",
                  "64",
                  "--micro-batches",
                  "4",
                  "--stages",
                  "2",
                  "--replicas",
                  "1-1",
                  "--schedule",
                  "1f1b",
                  "-q",
                  "-o",
                  file};
      words.insert(words.end(), links.begin(), links.end());
      const Outcome outcome = folder.tool("pp-plan", words);
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      return pp::plan::parse_plan(pp::read_file(folder.path() / file));
    };
    const pp::plan::Plan slow = plan({"--cluster", "slow.json"}, "slow-plan.json");
    const pp::plan::Plan fast =
        plan({"--devices", "2", "--bandwidth", "10e9", "--latency", "10us"}, "fast-plan.json");
    CHECK(pp::plan::stages_text(fast) != "6|2");
    CHECK(pp::plan::stages_text(slow) == "6|2");
    CHECK(sent(slow) < sent(fast));
  }

  TEST_CASE("a training over the link writes the weights of one process, and its trace has one clock") {
    if (without_mpi()) return;
    const HostsFolder folder;
    PlanSpec spec{.model = pp::test::mlp(2)};
    spec.cuts = {2};
    pp::plan::Plan plan = make_plan(spec);
    plan.devices[0].node = "10.77.0.2";  // rank 0 is on the other host
    plan.devices[1].node = "10.77.0.1";
    pp::write_file(folder.path() / "plan.json", pp::dump_json(pp::plan::to_json(plan)));
    const std::string training = " --data synthetic --synthetic-samples 96 --steps 24 --seed 7 ";
    const Outcome outcome = folder.on_hosts(kBin + "/pp-run launch plan.json --hosts $PP_HOSTS --" + training +
                                                "--save-weights apart -o report.json --trace trace.json",
                                            {"--clock-offset", "5000"});
    if (without_hosts(outcome)) return;
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    REQUIRE(folder
                .tool("pp-run", {"plan.json", "--data", "synthetic", "--synthetic-samples", "96", "--steps",
                                 "24", "--seed", "7", "--save-weights", "together"})
                .code == 0);
    CHECK(pp::read_file(folder.path() / "apart") == pp::read_file(folder.path() / "together"));

    const std::string clocks = folder.json("report.json")["context"]["clocks"];
    CAPTURE(clocks);
    CHECK(folder.json("report.json")["context"]["host"] == "host-b");
    CHECK(clocks.starts_with("rank 1: "));
    CHECK(clocks.find(" s behind (to ") != std::string::npos);
    CHECK(std::atof(clocks.c_str() + std::string("rank 1: ").size()) == doctest::Approx(5000).epsilon(1e-5));
    const pp::Json trace = folder.json("trace.json");
    CHECK(trace["otherData"]["clocks"] == clocks);
    // On one clock a forward of the first stage ends before that of the second begins, and the backwards the
    // other way.
    std::map<std::string, std::vector<std::pair<double, double>>> times;  // begin, end
    for (const pp::Json& event : trace["traceEvents"]) {
      if (event["ph"] != "X" || event["pid"] != 0) continue;
      const double begin = event["ts"];
      times[event["name"]].emplace_back(begin, begin + event["dur"].get<double>());
    }
    const auto follow = [&](const std::string& before, const std::string& after) {
      CAPTURE(before);
      REQUIRE(times[before].size() == times[after].size());
      REQUIRE_FALSE(times[before].empty());
      for (std::size_t i = 0; i < times[before].size(); ++i)
        CHECK(times[before][i].second <= times[after][i].first);
    };
    for (const char* const m : {"0", "1", "2", "3"}) {
      follow(std::string("F0.") + m, std::string("F1.") + m);
      follow(std::string("B1.") + m, std::string("B0.") + m);
    }
  }

  TEST_CASE("a parameter server on one host, a replica on the other: the weights of one process") {
    if (without_mpi()) return;
    const HostsFolder folder;
    for (const std::string schedule : {"parameter-server", "downpour"}) {
      PlanSpec spec{.model = pp::test::mlp(2), .replicas = {2}, .schedule = schedule};
      if (schedule == "downpour") spec.micro_batches = 1;
      pp::write_file(folder.path() / "plan.json", pp::dump_json(pp::plan::to_json(make_plan(spec))));
      const std::string training = "plan.json --data synthetic --synthetic-samples 96 --steps 24 --seed 7" +
                                   std::string(schedule == "downpour" ? " --interleave 3" : "");
      const auto train = [&](const std::string& file) { return training + " --save-weights " + file; };
      const Outcome outcome =
          folder.on_hosts("exec " PP_MPIRUN " -n 2 --hostfile $PP_HOSTS " + kBin + "/pp-run " + train("apart"));
      if (without_hosts(outcome)) return;
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      REQUIRE(
          pp::test::run_checked("/bin/sh", {"-c", kBin + "/pp-run " + train("together")}, folder.path()).code ==
          0);
      CHECK(pp::read_file(folder.path() / "apart") == pp::read_file(folder.path() / "together"));
    }
  }

  TEST_CASE("nothing of two hosts is left, also when the command fails") {
    const HostsFolder folder;
    const Outcome outcome = folder.on_hosts("echo $(hostname) $$ > host; cp $PP_HOSTS hosts; exit 5");
    if (without_hosts(outcome)) return;
    CHECK(outcome.code == 5);
    CHECK(pp::read_file(folder.path() / "host").starts_with("host-a "));
    CHECK(pp::read_file(folder.path() / "hosts") == "10.77.0.1 slots=1\n10.77.0.2 slots=1\n");
    const Outcome left = pp::test::run_checked(
        "/bin/sh", {"-c", "ps -eo args | grep '[h]ostname host-'; ip -o link | grep 'pp[0-9]*[ab]'"},
        folder.path());
    CHECK(left.out == "");
  }
}

}  // namespace hosts_test
