// Documents edited by hand: what pp-plan says about plans and programs that are not as the planner makes them.
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace plan_documents_test {
namespace {

using pp::Json;
using pp::test::Outcome;
using Change = std::function<void(Json&)>;

/// Four layers; plans in plan.json, a profile in profile.json.
struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), profile); }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  void write(const std::string& name, const std::string& text) const { pp::write_file(path() / name, text); }
  /// A valid plan of the model, changed.
  void plan(PlanSpec spec, const Change& change) const {
    spec.model = profile.model;
    Json json = pp::plan::to_json(make_plan(spec));
    change(json);
    write("plan.json", pp::dump_json(json));
  }
  /// `check` of it.
  Outcome check(PlanSpec spec, const Change& change) const {
    plan(std::move(spec), change);
    return run({"check", "plan.json"});
  }

  const pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
};

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-plan: error: " + message + "\n");
}

/// What the tool itself takes is some 20 MB; the documents of these tests claimed gigabytes.
void refused_small(const Outcome& outcome, const std::string& message) {
  refused(outcome, message);
  CHECK(outcome.peak_bytes < std::int64_t{300} << 20);
}

Json& program(Json& plan, std::size_t worker) { return plan["workers"][worker]["program"]; }

constexpr const char* kShared =
    ": worker 0 runs this micro-batch; replicas that split one cannot be run: list it on one worker";

}  // namespace

TEST_SUITE("apps/plan_documents") {
  TEST_CASE("replicas that run one micro-batch, or all, both in full are refused") {
    const PlanSpec two_replicas{.replicas = {2}};
    CHECK(Folder().check(two_replicas, [](Json&) {}).code == 0);
    refused(
        Folder().check(two_replicas, [](Json& p) { program(p, 1) = "F0.0 B0.0 F0.1 B0.1 F0.3 B0.3 AR0 U0"; }),
        std::string("plan.json: /workers: worker 1, operation 0 (F0.0)") + kShared);
    refused(Folder().check(two_replicas,
                           [](Json& p) {
                             for (const std::size_t w : {0, 1})
                               program(p, w) = "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3 AR0 U0";
                           }),
            std::string("plan.json: /workers: worker 1, operation 0 (F0.0)") + kShared);
  }

  TEST_CASE("so are replicas before another stage, copies of Chimera, and streams") {
    refused(Folder().check({.cuts = {2}, .replicas = {2, 1}},
                           [](Json& p) {
                             for (const std::size_t w : {0, 1})
                               program(p, w) = "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3 AR0 U0";
                           }),
            std::string("plan.json: /workers: worker 1, operation 0 (F0.0)") + kShared);
    refused(Folder().check({.cuts = {2}, .schedule = "chimera", .micro_batches = 2},
                           [](Json& p) {
                             for (const std::size_t w : {0, 1})
                               program(p, w) = "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1 AR0 AR1 U0 U1";
                           }),
            std::string("plan.json: /workers: worker 1, operation 0 (F0.0)") + kShared);
    refused(
        Folder().check({.replicas = {2}, .schedule = "pipedream", .micro_batches = 1},
                       [](Json& p) {
                         for (Json& worker : p["workers"])
                           worker["stream"] = {{"prologue", ""}, {"body", "F0.0 B0.0 AR0 U0"}, {"period", 1}};
                       }),
        "plan.json: /workers: worker 0, operation 4 (F0.1): workers of a stream take turns, in ascending "
        "order: "
        "F0.2 comes here");
  }

  TEST_CASE("a hole behind the first rounds of a stream is seen") {
    // Window 4 on one stage: the prologue runs F0.0 to F0.2, the body begins with F0.3 and B0.0. Without F0.2
    // the hole shows up in the third round.
    refused(
        Folder().check(
            {.schedule = "pipedream", .micro_batches = 1},
            [](Json& p) {
              p["workers"][0]["stream"] = {{"prologue", "F0.0 F0.1"}, {"body", "F0.3 B0.0 U0"}, {"period", 1}};
            }),
        "plan.json: /workers: stage 0: F0.2 is missing; list it on worker 0");
  }

  TEST_CASE("programs from a file whose rows share a micro-batch are refused before the search") {
    const Folder folder;
    folder.write("split.csv", "0F0,0B0,0F1,0B1\n0F0,0B0,0F1,0B1\n");
    refused(folder.run({"profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "16",
                        "--micro-batches", "2", "--programs", "split.csv"}),
            std::string("schedule custom: worker 1, operation 0 (F0.0)") + kShared);
  }

  TEST_CASE("programs from a file are no other schedule") {
    const Folder folder;
    folder.write("one.csv", "0F0,0B0,0F1,0B1\n");
    std::vector<std::string> arguments{
        "profile.json", "--devices",       "1", "--bandwidth", "1GB/s",  "--mini-batch",
        "16",           "--micro-batches", "2", "--programs",  "one.csv"};
    CHECK(folder.run(arguments).code == 0);
    arguments.insert(arguments.end(), {"--schedule", "gpipe"});
    refused(folder.run(arguments), "--programs: the programs are the schedule; leave --schedule gpipe out");
  }

  TEST_CASE("show checks the plan: stages on workers, workers on devices that do not exist") {
    const Folder folder;
    const auto shown = [&](const Change& change) {
      folder.plan({.cuts = {2}}, change);
      return folder.run({"show", "plan.json"});
    };
    for (const int worker : {7, 1'000'000}) {
      refused(shown([&](Json& p) { p["stages"][0]["workers"] = {worker}; }),
              "plan.json: /stages/0/workers: " + std::to_string(worker) + " is not in /workers");
    }
    refused(shown([](Json& p) { p["workers"][1]["device"] = 9; }),
            "plan.json: /workers/1/device: 9 is not in /devices");
    refused(shown([](Json& p) {
              p["predicted"]["links"] = {{{"from", 0}, {"to", 5}, {"bytes_per_step", 1}}};
            }),
            "plan.json: /predicted/links/0: must lead between workers, below 2");
  }

  TEST_CASE("show takes a plan without prediction and devices numbered as one likes") {
    const Folder folder;
    folder.plan({.cuts = {2}}, [](Json& p) {
      for (const char* optional :
           {"predicted", "certificate", "alternatives", "levels", "tied", "profile_hash", "cluster_hash"})
        p.erase(optional);
      for (const std::size_t w : {0, 1}) {
        p["devices"][w]["id"] = 70 + w;
        p["workers"][w]["device"] = 70 + w;
      }
    });
    const Outcome shown = folder.run({"show", "plan.json"});
    CHECK(shown.code == 0);
    CHECK(shown.out.find("cpu:1") != std::string::npos);
    CHECK(shown.out.find("the plan has no prediction (/predicted)\n") != std::string::npos);
    refused(
        folder.run({"show", "plan.json", "--timeline"}),
        "plan.json: /predicted/stages: has 0 entries for 2 stages; plan again, or price it with its profile");
  }

  TEST_CASE("an empty row of a file of programs is named") {
    const Folder folder;
    folder.write("empty.csv", "\n0F0,0B0,0F1,0B1\n");
    const std::string message =
        "empty.csv: row 0: no operations; give one row of cells per worker, as in 0F0,0B0";
    refused(folder.run({"simulate", "--csv", "empty.csv"}), message);
    refused(folder.run({"profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "16",
                        "--programs", "empty.csv"}),
            message);
  }

  TEST_CASE("a micro-batch number out of all proportion is refused before a table is made for it") {
    const Folder folder;
    folder.write("tiny.csv", "0F0,0B0,0F500000000\n");
    refused_small(folder.run({"simulate", "--csv", "tiny.csv"}),
                  "tiny.csv: stage 0: F0.1 is missing; list it on worker 0");
    folder.plan({.cuts = {2}}, [](Json& p) {
      p["training"]["mini_batch"] = 2147483647;
      p["training"]["micro_batches"] = 200000000;
    });
    refused_small(folder.run({"check", "plan.json"}),
                  "plan.json: /workers: stage 0: F0.4 is missing; list it on worker 0");
  }

  TEST_CASE("replicas whose turns meet after millions of micro-batches are refused for their size") {
    // 7 * 11 * 13 * 17 * 19 * 23 = 7,436,429 on six stages; as a plan whose streams are right.
    const Folder folder;
    pp::Profile deep = pp::test::sample_profile(std::vector<double>(6, 2.0));
    PlanSpec spec{.model = deep.model,
                  .cuts = {1, 2, 3, 4, 5},
                  .replicas = {7, 11, 13, 17, 19, 23},
                  .schedule = "pipedream",
                  .micro_batches = 1};
    folder.write("plan.json", pp::dump_json(pp::plan::to_json(make_plan(spec))));
    refused_small(folder.run({"check", "plan.json"}),
                  "plan.json: /workers: the streams do not repeat within the limit of 2000000 operations; give "
                  "the stages replicas with a smaller common multiple, and all streams of a stage one period");
  }
}

}  // namespace plan_documents_test
