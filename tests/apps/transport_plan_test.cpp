// A cluster that says what its messages ask of the devices, from the file to the predicted step.
#include <filesystem>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace transport_plan_test {
namespace {

using pp::plan::Plan;
using pp::test::Outcome;

/// A profile of two layers of 2 + 4 ms for 16 samples, whose tensor of 4096 bytes takes 1 ms.
struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(2, 2.0))); }
  void write_cluster(const std::string& more) const {
    pp::write_file(path() / "cluster.json", R"({"format": "pp.cluster", "version": 1,
      "devices": [{"id": 0, "kind": "cpu"}, {"id": 1, "kind": "cpu"}],
      "levels": [{"name": "node", "devices": 2, "bandwidth_bytes_per_s": 4.096e6, "latency_s": 0.00025)" +
                                                more + "}]}\n");
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  Outcome plan(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"profile.json",
                                       "--cluster",
                                       "cluster.json",
                                       "--mini-batch",
                                       "64",
                                       "--micro-batches",
                                       "4",
                                       "--schedule",
                                       "gpipe",
                                       "--stages",
                                       "2",
                                       "--replicas",
                                       "1-1",
                                       "-o",
                                       "plan.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  Plan read() const { return pp::plan::parse_plan(pp::read_file(path() / "plan.json")); }
};

}  // namespace

TEST_SUITE("apps/transport_plan") {
  TEST_CASE("messages that ask time of the devices lengthen the predicted step, and the plan remembers why") {
    const Folder folder;
    // F 2 ms, B 4 ms; a message takes 1 ms and arrives 0.25 ms later. Worker 1 begins at 3.25, runs four F and
    // four B until 27.25; the last gradient arrives at 28.5, its B ends at 32.5.
    folder.write_cluster("");
    REQUIRE(folder.plan().code == 0);
    CHECK(folder.read().predicted.step.count() == doctest::Approx(0.0325));
    // 0.125 + 0.25 * 1 ms more for each F and B, which leaves 1.25 - 2 * 0.375 ms between them. Worker 1
    // begins at 2.375 + 0.5 and runs until 2.875 + 4 * (2.375 + 4.375) = 29.875; 0.5 later worker 0 begins its
    // last B of 4.375: 34.75, of which it works 27.
    folder.write_cluster(R"(, "message_cost_s": 0.000125, "overlap": 0.75, "duplex": "half")");
    const Outcome outcome = folder.plan({"--explain"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Plan plan = folder.read();
    CHECK(plan.predicted.step.count() == doctest::Approx(0.03475));
    CHECK(plan.levels[0].message_cost.count() == 0.000125);
    CHECK(plan.levels[0].overlap == 0.75);
    CHECK((plan.levels[0].duplex == pp::Duplex::half));
    CHECK(outcome.out.find("Messages of level node: each tensor keeps both devices for 125 us; 75.0 % of") !=
          std::string::npos);
    // The plan alone says the same.
    const Outcome simulated = folder.run({"simulate", "plan.json"});
    CAPTURE(simulated.out);
    CHECK(simulated.out.find("bubble 22.3 %") != std::string::npos);
    CHECK(folder.run({"check", "plan.json"}).code == 0);
  }

  TEST_CASE("--all-reduce-overlap goes before what the cluster says, and is a share") {
    const Folder folder;
    folder.write_cluster(
        R"(, "all_reduce": {"bandwidth_bytes_per_s": 1e6, "latency_s": 0, "fit_residual": 0, "overlap": 0.5})");
    REQUIRE(folder.plan().code == 0);
    CHECK(folder.read().predicted.all_reduce_overlap == 0.5);
    REQUIRE(folder.plan({"--all-reduce-overlap", "0.25"}).code == 0);
    CHECK(folder.read().predicted.all_reduce_overlap == 0.25);
    const Outcome refused = folder.plan({"--all-reduce-overlap", "2"});
    CHECK(refused.code == 2);
    CHECK(refused.err.find("all_reduce_overlap = 2.000000 is not a share of the last backward; give 0 to 1") !=
          std::string::npos);
  }

  TEST_CASE("an overlap that is no share is refused where it stands") {
    const Folder folder;
    folder.write_cluster(R"(, "overlap": 1.5)");
    const Outcome outcome = folder.plan();
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("/levels/0/overlap: must be a number from 0.0 to 1.0, not 1.5") !=
          std::string::npos);
  }
}

}  // namespace transport_plan_test
