// Numbers out of all proportion, in options and documents: refused with their limit before anything is made of
// them.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"

#include "tests/support/doctest.h"

namespace plan_limits_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// Of a stage, as a plan keeps them.
constexpr const char* kCosts =
    R"({"forward_s": 1, "backward_s": 2, "input_gradient_s": 1, "weight_gradient_s": 1, "recompute_s": 1,
        "all_reduce_s": 0, "update_s": 0, "weights_bytes": 0, "gradients_bytes": 0, "optimizer_bytes": 0,
        "saved_bytes": 0, "input_bytes": 0, "boundary_bytes": 0, "workspace_bytes": 0, "versions": 1})";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::int64_t kMi = std::int64_t{4} << 20;  // a sanitizer's own memory counts, too
#else
constexpr std::int64_t kMi = std::int64_t{1} << 20;
#endif

struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), profile); }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  void write_plan(const Json& plan) const { pp::write_file(path() / "plan.json", pp::dump_json(plan)); }
  Json plan(PlanSpec spec) const {
    spec.model = profile.model;
    return pp::plan::to_json(make_plan(spec));
  }
  const pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
};

/// What the tool itself takes is some 20 MB.
void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-plan: error: " + message + "\n");
  CHECK(outcome.peak_bytes < 300 * kMi);
}

}  // namespace

TEST_SUITE("apps/plan_limits") {
  TEST_CASE("clusters of more devices than the limit, by product too") {
    const auto planned = [](const std::vector<std::string>& machine) {
      std::vector<std::string> arguments{"profile.json", "--mini-batch", "16"};
      arguments.insert(arguments.end(), machine.begin(), machine.end());
      return Folder().run(arguments);
    };
    // 3 * 1431655766 = 2^32 + 2.
    refused(planned({"--levels", "3@1GB/s,1431655766@1GB/s"}),
            "4294967298 devices exceed the limit of 65536; plan for a smaller cluster");
    refused(planned({"--devices", "2147483647", "--bandwidth", "1GB/s"}),
            "2147483647 devices exceed the limit of 65536; plan for a smaller cluster");
    refused(planned({"--devices", "2", "--bandwidth", "1GB/s", "--replicas", "2147483647-2147483647"}),
            "replicas need 4294967294 devices, the cluster has 2");
  }

  TEST_CASE("plans on more devices than can be simulated") {
    refused(Folder().run({"profile.json", "--mini-batch", "8", "--schedule", "pipedream", "--devices", "65536",
                          "--bandwidth", "1GB/s"}),
            "65536 devices exceed the limit of 20000 that can be simulated; plan for a smaller cluster");
  }

  TEST_CASE("machines of other planners' cost models larger than the limit, by product too") {
    const auto planned = [](const std::string& model, const std::vector<std::string>& machine) {
      std::vector<std::string> arguments{"profile.json", "--mini-batch", "16", "--cost-model", model};
      arguments.insert(arguments.end(), machine.begin(), machine.end());
      return Folder().run(arguments);
    };
    const std::vector<std::string> most{"--devices", "2147483647", "--bandwidth", "1GB/s"};
    for (const char* model : {"pipedream-code", "pipedream-paper", "dnn-partitioning", "piper"})
      refused(planned(model, most), "2147483647 devices exceed the limit of 65536; plan for a smaller cluster");
    // 3 * 1431655766 = 2^32 + 2.
    refused(planned("pipedream-code", {"--levels", "3@1GB/s,1431655766@1GB/s"}),
            "4294967298 devices exceed the limit of 65536; plan for a smaller cluster");
    refused(planned("dapple", {"--devices", "1025"}),
            "1025 devices exceed the limit of 1024; plan for a smaller cluster");
  }

  TEST_CASE("more micro-batches than the limit") {
    const std::vector<std::string> request{"profile.json", "--devices", "1", "--mini-batch", "2147483647"};
    auto count = request, size = request;
    count.insert(count.end(), {"--micro-batches", "2147483647"});
    size.insert(size.end(), {"--micro-batch-size", "1"});
    const std::string message =
        "micro_batches = 2147483647 exceeds the limit of 1000000; use larger micro-batches";
    refused(Folder().run(count), message);
    refused(Folder().run(size), message);
  }

  TEST_CASE("steps of more operations than a plan may have") {
    const auto planned = [](const std::vector<std::string>& rest) {
      std::vector<std::string> arguments{
          "profile.json", "--devices", "4", "--bandwidth",    "1GB/s",        "--mini-batch",
          "1000000",      "--threads", "1", "--linear-batch", "--time-limit", "20s"};
      arguments.insert(arguments.end(), rest.begin(), rest.end());
      return Folder().run(arguments);
    };
    // F and B of four stages: 8 million.
    refused(
        planned({"--micro-batch-size", "1", "--schedule", "1f1b", "--stages", "4", "--replicas", "1-1-1-1"}),
        "schedule 1f1b: a step of every plan that was found has more than 2000000 operations, the limit; use "
        "fewer stages or larger micro-batches");
    refused(
        planned({"--micro-batch-size", "1", "--schedule", "zb-h1", "--stages", "4"}),
        "schedule zb-h1: stages times micro-batches make more than 2000000 operations, the limit; use fewer "
        "stages or micro-batches");
    const Outcome free = planned({});
    CHECK(free.code == 0);
    CHECK(free.peak_bytes < 1024 * kMi);
  }

  TEST_CASE("schedules of more operations than the limit") {
    const auto simulated = [](const std::string& name, const std::string& stages,
                              const std::string& micro_batches) {
      return Folder().run(
          {"simulate", "--schedule", name, "--stages", stages, "--micro-batches", micro_batches});
    };
    for (const std::string name : {"interleaved", "gpipe", "chimera", "pipedream"}) {
      refused(
          simulated(name, "2", "2147483647"),
          "schedule " + name +
              ": stages times micro-batches make more than 2000000 operations, the limit; use fewer stages or "
              "micro-batches");
    }
    refused(simulated("gpipe", "2147483647", "4"),
            "--stages: \"2147483647\" is not a whole number from 1 to 2000000; see pp-plan simulate --help");
  }

  TEST_CASE("streams through more stages than can be simulated") {
    const auto simulated = [](const std::string& name, const std::string& stages) {
      return Folder().run({"simulate", "--schedule", name, "--stages", stages});
    };
    // A step of partime has a forward, a backward and an update of every stage; 6 steps per stage are looked
    // at.
    for (const std::string stages : {"334", "1000", "5000"}) {
      refused(simulated("partime", stages),
              "schedule partime: stages times micro-batches make more than 2000000 operations, the limit; use "
              "fewer "
              "stages or micro-batches");
    }
    const Outcome deep = Folder().run({"simulate", "--schedule", "partime", "--stages", "333", "--json"});
    REQUIRE(deep.code == 0);
    CHECK(pp::parse_json(deep.out).at("steady_period") == 3);  // F = 1, B = 2 in every step
    // The windows of 2000 stages alone are 2000 + 1999 + .. + 1 forwards.
    for (const std::string stages : {"2000", "5000"}) {
      refused(
          simulated("pipedream", stages),
          "schedule pipedream: stages times micro-batches make more than 2000000 operations, the limit; use "
          "fewer stages or micro-batches");
    }
    CHECK(simulated("pipedream", "1000").code == 0);
    refused(Folder().run({"simulate", "--schedule", "pipedream", "--stages", "2", "--window", "2147483647,1"}),
            "schedule pipedream: stages times micro-batches make more than 2000000 operations, the limit; use "
            "fewer "
            "stages or micro-batches");
  }

  TEST_CASE("costs whose sums are no numbers") {
    refused(Folder().run({"simulate", "--schedule", "gpipe", "--stages", "2", "--costs", "F=1e308"}),
            "costs: \"F=1e308\" needs a time from 0 to 1e15 behind the equals sign, as in F=1.5");
    const Outcome largest =
        Folder().run({"simulate", "--schedule", "gpipe", "--stages", "2", "--costs", "F=1e15,I=1e15,W=1e15"});
    CHECK(largest.code == 0);
    CHECK(largest.out.find("inf") == std::string::npos);
    CHECK(largest.out.find("nan") == std::string::npos);
  }

  TEST_CASE("quantities of documents whose sums are no numbers") {
    const Folder folder;
    const auto with = [&](const char* key, Json value) {
      Json plan = folder.plan({});
      plan["predicted"]["workers"][0][key] = std::move(value);
      folder.write_plan(plan);
      return folder.run({"check", "plan.json"});
    };
    refused(with("peak_bytes", std::int64_t{9'000'000'000'000'000'000}),
            "plan.json: /predicted/workers/0/peak_bytes: must be an integer from 0 to 1000000000000000, not "
            "9000000000000000000");
    refused(with("busy_s", 1e308),
            "plan.json: /predicted/workers/0/busy_s: must be a number from 0.0 to 1e+30, not 1e+308");
  }

  TEST_CASE("a stream is simulated for so many updates as its operations allow") {
    const Folder folder;
    Json plan = folder.plan({.schedule = "pipedream", .micro_batches = 1});
    plan["predicted"]["stages"] = Json::array({pp::parse_json(kCosts)});
    folder.write_plan(plan);
    CHECK(folder.run({"simulate", "plan.json", "--updates", "10"}).code == 0);
    refused(folder.run({"simulate", "plan.json", "--updates", "2147483647"}),
            "plan.json: updates: 2147483647 mini-batches of 1 stages exceed the limit of 2000000 operations; "
            "simulate fewer updates");
  }

  TEST_CASE("more workers than can be simulated") {
    const Folder folder;
    Json plan = folder.plan({.replicas = {2}});
    const Json prediction = plan["predicted"]["workers"][0];
    for (int w = 2; w < 20'001; ++w) {
      plan["workers"].push_back({{"id", w}, {"device", 0}, {"rank", 0}, {"program", "AR0 U0"}});
      plan["stages"][0]["workers"].push_back(w);
      plan["predicted"]["workers"].push_back(prediction);
    }
    plan["predicted"]["stages"] = Json::array({pp::parse_json(kCosts)});
    folder.write_plan(plan);
    CHECK(folder.run({"check", "plan.json"}).code == 0);
    refused(folder.run({"simulate", "plan.json"}),
            "plan.json: /workers: has 20001 entries; at most 20000 can be simulated");
    refused(Folder().run({"simulate", "--schedule", "gpipe", "--stages", "20001", "--micro-batches", "1"}),
            "20001 workers exceed the limit of 20000 that can be simulated");
  }
}

}  // namespace plan_limits_test
