// scripts/tune: pp-plan's best plans measured, and the fastest kept. Reports calibrate profiles.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace tune_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// A profile of the small model in profile.json.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    pp::write_file(path() / "model.json", pp::dump_json(pp::to_json(pp::test::small_model(8))));
    REQUIRE(tool("pp-profile", {"model.json", "--quick", "--micro-batch-sizes", "2,4,8", "-o", "profile.json"})
                .code == 0);
  }
  Outcome tool(const std::string& name, const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program(name), arguments, path());
  }
  Outcome plan(std::vector<std::string> more) const {
    more.insert(more.begin(), request.begin(), request.end());
    return tool("pp-plan", more);
  }
  Outcome tune(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{std::string("PP_BIN=") + pp::test::program(), "python3",
                                       pp::test::repository("scripts/tune")};
    arguments.insert(arguments.end(), request.begin(), request.end());
    arguments.insert(arguments.end(), {"-o", "tuned.json", "--seconds", "0.05", "--rounds", "2", "--top", "3",
                                       "--run-options=--synthetic-samples 64"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return pp::test::run_checked("/usr/bin/env", arguments, path());
  }
  std::string text(const std::string& name) const { return pp::read_file(path() / name); }
  bool has(const std::string& name) const { return std::filesystem::exists(path() / name); }

  const std::vector<std::string> request{"profile.json", "--devices",    "2", "--bandwidth",
                                         "10GB/s",       "--mini-batch", "16"};
};

}  // namespace

TEST_SUITE("apps/tune") {
  TEST_CASE("the fastest measured of the best plans is kept, as pp-plan writes it") {
    const Folder folder;
    const Outcome tuned = folder.tune({"--data", "synthetic", "--json"});
    CAPTURE(tuned.err);
    REQUIRE(tuned.code == 0);
    const Json result = pp::parse_json(tuned.out);
    std::vector<double> measured;
    for (const Json& plan : result["plans"]) {
      CHECK(plan["steps_s"].size() == 2);
      measured.push_back(plan["measured_s"].get<double>());
    }
    const auto kept = result["kept"].get<std::size_t>();
    CHECK(measured[kept] == *std::ranges::min_element(measured));
    std::filesystem::create_directory(folder.path() / "all");
    REQUIRE(folder.plan({"--top", "2", "--write-alternatives", "all", "-o", "all/chosen.json"}).code == 0);
    const pp::plan::Plan chosen = pp::plan::parse_plan(folder.text("all/chosen.json"));
    CHECK(measured.size() == 1 + chosen.alternatives.size());
    const std::string name = kept == 0 ? "chosen" : "alternative-" + std::to_string(kept);
    CHECK(folder.text("tuned.json") == folder.text("all/" + name + ".json"));
    CHECK(folder.tool("pp-run", {"check", "tuned.json", "--data", "synthetic"}).code == 0);
  }

  TEST_CASE("the table has a row for each plan and marks the one that is kept") {
    const Folder folder;
    const Outcome tuned = folder.tune({"--data", "synthetic"});
    REQUIRE(tuned.code == 0);
    CHECK(tuned.out.starts_with("schedule"));
    const std::size_t mark = tuned.out.find("<- kept");
    CHECK(mark != std::string::npos);
    CHECK(tuned.out.find("<- kept", mark + 1) == std::string::npos);
    CHECK(tuned.out.find("the plan that pp-plan chose is ") != std::string::npos);
    CHECK(tuned.err.find("tune: round 2 of 2: ") != std::string::npos);
  }

  TEST_CASE("what the tools refuse keeps their words and exit codes, and nothing is written") {
    const Folder folder;
    const auto refused = [&](const std::vector<std::string>& more, int code, const std::string& words) {
      const Outcome outcome = folder.tune(more);
      CAPTURE(outcome.err);
      CHECK(outcome.code == code);
      CHECK(outcome.out.empty());
      CHECK(outcome.err.find(words) != std::string::npos);
      CHECK_FALSE(folder.has("tuned.json"));
    };
    refused({"--data", "synthetic", "--mini-bach", "8"}, 2,
            "unknown option --mini-bach; did you mean --mini-batch?");
    refused({"--data", "synthetic", "--memory-limit", "1KiB"}, 3, "no feasible plan");
    refused({"--data", "nowhere"}, 2, "nowhere");
    refused({"--data", "synthetic", "--explain"}, 2, "--explain is for one plan; leave it out");
    refused({"--data", "synthetic", "--seconds", "0"}, 2, "0 is not above 0");
    refused({}, 2, "--data");
  }

  TEST_CASE("a run's report calibrates the profile of its plan") {
    const Folder folder;
    REQUIRE(folder.plan({"-o", "plan.json", "--stages", "2", "--schedule", "1f1b"}).code == 0);
    REQUIRE(folder
                .tool("pp-run", {"plan.json", "--data", "synthetic", "--synthetic-samples", "64", "--steps",
                                 "10", "-o", "report.json"})
                .code == 0);
    const Outcome made = folder.plan({"--calibrate", "report.json", "--explain", "-o", "calibrated.json"});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    CHECK(made.out.find("\ncalibrated by 1 report: ") != std::string::npos);
    CHECK(made.out.find("\n  its stage 1 (") != std::string::npos);
    const pp::plan::Plan plan = pp::plan::parse_plan(folder.text("calibrated.json"));
    REQUIRE(plan.calibration.has_value());
    CHECK(plan.calibration->least < plan.calibration->largest);
    CHECK(folder.tool("pp-plan", {"check", "calibrated.json", "--profile", "profile.json"}).code == 0);
    const Outcome other = folder.plan({"--calibrate", "plan.json"});
    CHECK(other.code == 2);
    CHECK(other.err.ends_with(
        "pp-plan: error: plan.json: /format: is \"pp.plan\"; a run's report is \"pp.report\"\n"));
  }
}

}  // namespace tune_test
