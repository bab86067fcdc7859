// Machines of several nodes on pp-plan's command line.
#include <filesystem>

#include "apps/plan/stage_table.h"
#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace levels_test {
namespace {

using pp::plan::Plan;
using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(8, 2.0))); }
  Outcome plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"profile.json", "--mini-batch", "64", "-o", "plan.json"});
    return pp::test::run_checked(kPlan, arguments, path());
  }
  Plan read() const { return pp::plan::parse_plan(pp::read_file(path() / "plan.json")); }
};

std::vector<int> devices_of(const Plan& plan) {
  std::vector<int> devices;
  for (const pp::plan::Worker& worker : plan.workers) devices.push_back(number(worker.device));
  return devices;
}

}  // namespace

TEST_SUITE("apps/levels") {
  TEST_CASE("--levels and --memory describe nodes of equal devices") {
    const Folder folder;
    const Outcome outcome =
        folder.plan({"--levels", "2@8GB/s,3@1GB/s", "--latency", "5us", "--memory", "2GiB"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Plan plan = folder.read();
    REQUIRE(plan.devices.size() == 6);
    CHECK(plan.devices[4].node == "c");
    CHECK(plan.devices[5].index == 1);
    CHECK(plan.devices[5].memory == pp::Bytes(std::int64_t{2} << 30));
    REQUIRE(plan.levels.size() == 2);
    CHECK(plan.levels[0].devices == 2);
    CHECK(plan.levels[1].devices == 6);
    CHECK(plan.levels[1].bandwidth == pp::BytesPerSecond(1e9));
    CHECK(plan.levels[1].latency.count() == doctest::Approx(5e-6));
    CHECK(plan.workers.back().rank == (static_cast<int>(plan.workers.size()) - 1) / 2);
  }

  TEST_CASE("--placement says how stages go through the nodes") {
    const Folder folder;
    const auto placed = [&](const std::string& placement) {
      const Outcome outcome = folder.plan({"--levels", "2@8GB/s,2@1GB/s", "--stages", "2", "--replicas", "1-1",
                                           "--schedule", "1f1b", "--placement", placement});
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      return devices_of(folder.read());
    };
    CHECK(placed("packed") == std::vector<int>{0, 1});
    CHECK(placed("scatter") == std::vector<int>{0, 2});
    CHECK(placed("fresh") == std::vector<int>{0, 2});
    CHECK(placed("auto") == std::vector<int>{0, 1});  // the faster link
  }

  TEST_CASE("devices of several nodes are named with their node, those of one without") {
    const Folder folder;
    const std::vector<std::string> stages{"--stages", "2", "--replicas", "1-1", "--schedule", "1f1b"};
    const auto table = [&](std::vector<std::string> machine, const std::string& placement) {
      machine.insert(machine.end(), stages.begin(), stages.end());
      machine.insert(machine.end(), {"--placement", placement});
      const Outcome outcome = folder.plan(std::move(machine));
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      const Outcome shown = pp::test::run_checked(kPlan, {"show", "plan.json"}, folder.path());
      CHECK(shown.out == outcome.out);
      return outcome.out;
    };
    const std::string scattered = table({"--levels", "2@8GB/s,2@1GB/s"}, "scatter");
    CHECK(scattered.find("  a/cpu:0  ") != std::string::npos);
    CHECK(scattered.find("  b/cpu:0  ") != std::string::npos);
    CHECK(scattered.find("unused devices: a/cpu:1, b/cpu:1\n") != std::string::npos);
    const std::string one_node = table({"--devices", "3", "--bandwidth", "1GB/s"}, "auto");
    CHECK(one_node.find("  cpu:1  ") != std::string::npos);
    CHECK(one_node.find("unused devices: cpu:2\n") != std::string::npos);
  }

  TEST_CASE("stages that are alike share a row, their devices are a range, equal numbers are counted") {
    const Folder folder;
    pp::test::write_profile(folder.path(), pp::test::sample_profile(std::vector<double>(16, 2.0)));
    const Outcome outcome = folder.plan({"--devices", "8", "--bandwidth", "8GB/s", "--stages", "8",
                                         "--schedule", "gpipe", "--micro-batches", "8"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CAPTURE(outcome.out);
    CHECK(outcome.out.find("8 stages, replicas 8 x 1, ") != std::string::npos);
    // Sixteen equal layers, two a stage; the first of the busiest stages is the bottleneck.
    CHECK(outcome.out.find("\n     0 ") != std::string::npos);
    CHECK(outcome.out.find("\n1 .. 7 ") != std::string::npos);
    CHECK(outcome.out.find("  layer2 .. layer15  cpu:1 .. cpu:7  ") != std::string::npos);
  }

  TEST_CASE("four equal items of a list, or more, are counted") {
    using pp::plan_tool::counted_runs;
    CHECK(counted_runs("2-2-2-2", '-') == "4 x 2");
    CHECK(counted_runs("2-2-2", '-') == "2-2-2");
    CHECK(counted_runs("8-1-1-1-1-1-3", '-') == "8, 5 x 1, 3");
    CHECK(counted_runs("all|all|all|all|-", '|') == "4 x all, -");
    CHECK(counted_runs("16", '|') == "16");
  }

  TEST_CASE("a machine is described once") {
    const Folder folder;
    const auto error = [&](std::vector<std::string> arguments) {
      const Outcome outcome = folder.plan(std::move(arguments));
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    const std::string twice =
        "pp-plan: error: --levels says how many devices there are and how fast their links; leave out "
        "--devices and "
        "--bandwidth\n";
    CHECK(error({"--levels", "2@8GB/s", "--devices", "2"}) == twice);
    CHECK(error({"--levels", "2@8GB/s", "--bandwidth", "1GB/s"}) == twice);
    CHECK(error({"--levels", "2"}) ==
          "pp-plan: error: --levels: \"2\" is not devices@bandwidth; write for example 8@10GB/s,2@1GB/s\n");
    CHECK(error({"--placement", "near", "--devices", "1"}).find("auto, packed, scatter, fresh") !=
          std::string::npos);
  }
}

}  // namespace levels_test
