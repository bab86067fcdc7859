// pp-plan --calibrate and --write-alternatives on a profile of round numbers.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "libprofile/core/hash.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace calibrate_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// Six layers, 2 + 4 ms each per 16 samples; the plan of two stages in plan.json.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0)));
    REQUIRE(make({"-o", "plan.json"}).code == 0);
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  Outcome make(std::vector<std::string> more) const {
    std::vector<std::string> arguments{
        "profile.json", "--devices", "2", "--bandwidth",     "1e12", "--mini-batch",
        "64",           "--stages",  "2", "--micro-batches", "4",    "--schedule",
        "1f1b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  Json json(const std::string& name) const { return pp::parse_json(pp::read_file(path() / name)); }
  pp::plan::Plan plan(const std::string& name) const {
    return pp::plan::parse_plan(pp::read_file(path() / name));
  }
  /// A report of plan.json in which forwards of stage 0 took `factor` times as long as promised.
  Json write_report(const std::string& name, double factor) const {
    const pp::plan::Plan ran = plan("plan.json");
    Json report{{"format", "pp.report"}, {"version", 1}, {"plan", pp::plan::to_json(ran)}, {"steps", 10}};
    for (int stage = 0; stage < 2; ++stage) {
      const pp::plan::StageCosts& costs = ran.predicted.stages[static_cast<std::size_t>(stage)];
      const auto add = [&](const char* kind, pp::Seconds promised, double times) {
        report["op_times"].push_back({{"kind", kind},
                                      {"stage", stage},
                                      {"count", 40},
                                      {"predicted_s", promised.count()},
                                      {"median_s", times * promised.count()}});
      };
      add("F", costs.forward, stage == 0 ? factor : 1);
      add("B", costs.backward, 1);
      add("U", costs.update, 1);
    }
    pp::write_file(path() / name, pp::dump_json(report));
    return report;
  }
};

}  // namespace

TEST_SUITE("apps/calibrate") {
  TEST_CASE("a report of what was promised changes nothing but that the plan says so") {
    const Folder folder;
    const Json report = folder.write_report("report.json", 1);
    REQUIRE(folder.make({"--calibrate", "report.json", "-o", "calibrated.json"}).code == 0);
    Json calibrated = folder.json("calibrated.json");
    CHECK(calibrated["calibration"] == Json{{"reports", {pp::content_hash(pp::dump_json_compact(report))}},
                                            {"least_factor", 1.0},
                                            {"largest_factor", 1.0}});
    calibrated.erase("calibration");
    CHECK(pp::dump_json(calibrated) == pp::read_file(folder.path() / "plan.json"));
  }

  TEST_CASE(
      "forwards that took four times as long make the stage smaller; text, --explain and --json say why") {
    // Layers of 8 + 4 and 2 + 4 ms: stages of 3|3 take 36 and 18 ms, of 2|4 both 24 = 12 + 3 x 6 - 6.
    const Folder folder;
    folder.write_report("report.json", 4);
    REQUIRE(pp::plan::stages_text(folder.plan("plan.json")) == "3|3");
    const std::vector<std::string> arguments{"--calibrate", "report.json", "--explain", "-o",
                                             "calibrated.json"};
    const Outcome made = folder.make(arguments);
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const pp::plan::Plan plan = folder.plan("calibrated.json");
    CHECK(pp::plan::stages_text(plan) == "2|4");
    // Two layers of 8 ms; in the stage behind one of 8 and three of 2.
    CHECK(plan.predicted.stages[0].forward.count() == doctest::Approx(0.016));
    CHECK(plan.predicted.stages[1].forward.count() == doctest::Approx(0.014));
    CHECK(made.out.find("\ncalibrated by 1 report: times of the profile by factors of 1.00 to 4.00\n") !=
          std::string::npos);
    CHECK(made.out.find("\n  its stage 0 (layer0 .. layer2): F 4.000 B 1.000 I 1.000 W 1.000\n"
                        "  its stage 1 (layer3 .. layer5): F 1.000 B 1.000 I 1.000 W 1.000\n") !=
          std::string::npos);
    std::vector<std::string> printing = arguments;
    printing.emplace_back("--json");
    const Json printed = pp::parse_json(folder.make(printing).out);
    CHECK(printed["explanation"]["calibration"][0]["stages"][0]["forward"].get<double>() == doctest::Approx(4));
    // The hash is that of the profile on disk, so the plan can be checked against it.
    CHECK(folder.run({"check", "calibrated.json", "--profile", "profile.json"}).code == 0);
    CHECK(folder.run({"show", "calibrated.json"}).out.find("calibrated by 1 report") != std::string::npos);
  }

  TEST_CASE("a device on which everything took four times as long has a quarter of its speed, and gets less") {
    const Folder folder;
    Json report = folder.write_report("report.json", 1);
    for (Json& row : report["op_times"])
      if (row["stage"] == 0) row["median_s"] = 4 * row["median_s"].get<double>();
    pp::write_file(folder.path() / "report.json", pp::dump_json(report));
    const Outcome made = folder.make({"--calibrate", "report.json", "-o", "calibrated.json"});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const pp::plan::Plan plan = folder.plan("calibrated.json");
    CHECK(plan.devices[0].speed == doctest::Approx(0.25));
    CHECK(made.out.find(
              "\ncalibrated by 1 report: times of the profile by factors of 1.00 to 1.00; speed of device "
              "0: 0.25\n") != std::string::npos);
    // One layer of 4 x 6 ms a micro-batch and five of 6 ms.
    for (const pp::plan::Stage& stage : plan.stages) {
      const bool slow = device_of(plan, stage.workers.front()).speed < 1;
      CHECK(stage.layers.size() == (slow ? 1 : 5));
    }
  }

  TEST_CASE("of two reports the mean counts, and what does not belong to the profile is refused by name") {
    const Folder folder;
    folder.write_report("two.json", 2);
    folder.write_report("six.json", 6);
    REQUIRE(folder.make({"--calibrate", "two.json", "--calibrate", "six.json", "-o", "calibrated.json"}).code ==
            0);
    CHECK(folder.plan("calibrated.json").predicted.stages[0].forward.count() == doctest::Approx(0.016));
    pp::test::write_profile(folder.path(), pp::test::sample_profile(std::vector<double>(4, 2.0)));
    const Outcome other = folder.make({"--calibrate", "two.json"});
    CHECK(other.code == 2);
    CHECK(other.err.starts_with("pp-plan: error: two.json: the run is of model \"sample\" ("));
    CHECK(folder.make({"--calibrate", "two.json", "--cost-model", "pipedream-code"}).err ==
          "pp-plan: error: --calibrate: only for --cost-model pp; leave one of the two out\n");
  }

  TEST_CASE("of two profiles the one of the run's plan is calibrated") {
    const Folder folder;
    folder.write_report("report.json", 4);
    pp::Profile wide = pp::test::sample_profile(std::vector<double>(6, 20.0));
    wide.device.cores_per_device = 2;
    pp::write_file(folder.path() / "wide.json", pp::dump_json(to_json(wide)));
    const std::vector<std::string> both{"wide.json",   "profile.json", "--devices",    "2",
                                        "--bandwidth", "1e12",         "--mini-batch", "64",
                                        "--calibrate", "report.json",  "-o",           "both.json"};
    REQUIRE(folder.run(both).code == 0);
    CHECK(folder.plan("both.json").calibration->largest == doctest::Approx(4));
    Json stranger = folder.json("report.json");
    stranger["plan"]["profile_hash"] = "sha256:0";
    pp::write_file(folder.path() / "report.json", pp::dump_json(stranger));
    CHECK(folder.run(both).err ==
          "pp-plan: error: report.json: /plan/profile_hash: none of the profiles is sha256:0, from which the "
          "plan "
          "was made; give that profile\n");
  }

  TEST_CASE("the alternatives are written as plans that promise what the list says") {
    const Folder folder;
    const std::vector<std::string> request{
        "profile.json", "--devices", "2", "--bandwidth",          "1e12",  "--mini-batch", "64", "-o",
        "plan.json",    "--top",     "3", "--write-alternatives", "others"};
    REQUIRE(folder.run(request).code == 0);
    const pp::plan::Plan best = folder.plan("plan.json");
    REQUIRE(best.alternatives.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string name = "others/alternative-" + std::to_string(i + 1) + ".json";
      CAPTURE(name);
      CHECK(folder.run({"check", name, "--profile", "profile.json"}).code == 0);
      const pp::plan::Plan other = folder.plan(name);
      CHECK(pp::plan::stages_text(other) == best.alternatives[i].stages);
      CHECK(pp::plan::replicas_text(other) == best.alternatives[i].replicas);
      CHECK(other.predicted.step == best.alternatives[i].step);
      CHECK(other.predicted.expected_step == best.alternatives[i].expected_step);
      CHECK(other.predicted.expected_step.has_value());
    }
    CHECK_FALSE(std::filesystem::exists(folder.path() / "others/alternative-4.json"));
    CHECK(folder.make({"--write-alternatives", "others", "--cost-model", "pipedream-code"}).err ==
          "pp-plan: error: --write-alternatives: only for --cost-model pp; leave one of the two out\n");
    CHECK(folder.make({"--write-alternatives", "profile.json/x"})
              .err.starts_with("pp-plan: error: --write-alternatives: profile.json/x cannot be made: "));
  }
}

}  // namespace calibrate_test
