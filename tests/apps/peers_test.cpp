// pp-plan under other planners' cost models, and beside them.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace peers_test {
namespace {

using pp::test::Outcome;

/// Six layers, 2 ms each per 16 samples, whose first size is 1 sample: 0.125 ms forward, 0.25 ms backward.
struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  Outcome plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "profile.json");
    return run(arguments);
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
};

std::string error(const std::vector<std::string>& arguments) {
  const Outcome outcome = Folder().plan(arguments);
  CHECK(outcome.code == 2);
  return outcome.err;
}

}  // namespace

TEST_SUITE("apps/peers") {
  TEST_CASE("every peer's model answers with objective, replicas, cuts and the time of the search") {
    const Folder folder;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"pipedream-code", "--devices", "4", "--bandwidth", "1e9"},
          {"pipedream-code", "--levels", "2@4294967296,2@1e9", "--machines", "at-most"},
          {"pipedream-paper", "--devices", "4", "--bandwidth", "1e9", "--no-activation-cost"},
          {"dnn-partitioning", "--devices", "2", "--bandwidth", "1e9", "--memory-limit", "1GiB"},
          {"piper", "--devices", "4", "--bandwidth", "1e9", "--micro-batches-in-batch", "8"},
          {"dapple", "--servers", "2x2", "--mini-batch", "64"}}) {
      for (const char* strategy : {"auto", ""}) {
        std::vector<std::string> all{"--json", "--cost-model"};
        all.insert(all.end(), arguments.begin(), arguments.end());
        if (*strategy != '\0') all.insert(all.end(), {"--strategy", strategy});
        const Outcome outcome = folder.plan(all);
        CAPTURE(arguments.front());
        CAPTURE(outcome.err);
        REQUIRE(outcome.code == 0);
        const pp::Json json = pp::parse_json(outcome.out);
        CHECK(json["cost_model"] == arguments.front());
        CHECK(json["certificate"]["objective_s"].get<double>() > 0);
        CHECK(json["cuts"].size() + 1 == json["stages"].size());
        CHECK_FALSE(json["replicas"].get<std::string>().empty());
        CHECK(json["search"]["seconds"].get<double>() >= 0);
      }
    }
  }

  TEST_CASE("published profiles give the values that their own planners give") {
    const Folder folder;
    const auto stages_of = [&](const std::string& name, const std::vector<std::string>& options,
                               double seconds) {
      std::vector<std::string> all{pp::test::test_data("peers/" + name + ".json"), "--json"};
      all.insert(all.end(), options.begin(), options.end());
      const Outcome outcome = folder.run(all);
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      const pp::Json json = pp::parse_json(outcome.out);
      CHECK(json["certificate"]["objective_s"].get<double>() == doctest::Approx(seconds).epsilon(1e-9));
      return json["stages"];
    };
    const pp::Json vgg = stages_of(
        "vgg16", {"--cost-model", "pipedream-code", "--devices", "4", "--bandwidth", "1e9"}, 0.205520896);
    CHECK(vgg[0]["replicas"] == 3);
    CHECK_FALSE(vgg[0].contains("tensor_degree"));
    const pp::Json bert = stages_of("piper_bert32a100",
                                    {"--cost-model", "piper", "--devices", "64", "--bandwidth", "26843545600",
                                     "--memory-limit", "2GiB", "--micro-batches-in-batch", "1920"},
                                    0.0320300812349);
    const auto split = [](const pp::Json& stage) { return stage["tensor_degree"] == 2; };
    CHECK(std::any_of(bert.begin(), bert.end(), split));
  }

  TEST_CASE("a peer's plan is a table for people, JSON with --json or as a file") {
    const Folder folder;
    const std::vector<std::string> request{
        "--cost-model", "pipedream-code", "--devices", "4", "--bandwidth", "1e9", "-o", "plan.json"};
    const Outcome table = folder.plan(request);
    REQUIRE(table.code == 0);
    CHECK(table.out.starts_with("sample under the cost model pipedream-code (released): "));
    CHECK(table.out.find("stage  layers  from .. to") != std::string::npos);
    CHECK(table.out.find("\nobjective ") != std::string::npos);
    CHECK(pp::parse_json(pp::read_file(folder.path() / "plan.json"))["cost_model"] == "pipedream-code");
    std::vector<std::string> as_json = request;
    as_json.emplace_back("--json");
    CHECK(pp::parse_json(folder.plan(as_json).out)["cost_model"] == "pipedream-code");
  }

  TEST_CASE("a peer's plan that does not fit is exit 3 with the limit that would") {
    const Folder folder;
    std::vector<std::string> request{"--cost-model", "dnn-partitioning", "--devices",      "2",  "--bandwidth",
                                     "1e9",          "--json",           "--memory-limit", "100"};
    const Outcome refused = folder.plan(request);
    REQUIRE(refused.code == 3);
    CHECK(refused.err.find("no feasible plan: does not fit 2 devices of 100 bytes") != std::string::npos);
    request.back() =
        std::to_string(pp::parse_json(refused.out)["smallest_memory_limit_bytes"].get<std::int64_t>());
    CHECK(folder.plan(request).code == 0);
  }

  TEST_CASE("options of one model are refused with another, and machines that are given twice") {
    CHECK(
        error({"--cost-model", "alpa"}) ==
        "pp-plan: error: --cost-model: unknown name \"alpa\"; use one of pp, pipedream-code, pipedream-paper, "
        "dnn-partitioning, piper, dapple\n");
    CHECK(error({"--machines", "exactly", "--mini-batch", "4", "--devices", "1"}) ==
          "pp-plan: error: --machines belongs to --cost-model pipedream-code or pipedream-paper\n");
    CHECK(error({"--cost-model", "piper", "--servers", "2x8"}) ==
          "pp-plan: error: --servers belongs to --cost-model dapple\n");
    CHECK(error({"--cost-model", "dapple", "--servers", "2x8", "--devices", "16"}) ==
          "pp-plan: error: --devices, --levels and --servers describe one machine; give one of them\n");
    CHECK(error({"--cost-model", "dapple", "--servers", "16"}) ==
          "pp-plan: error: --servers: \"16\" is not servers x devices; write for example 2x8\n");
    CHECK(error({"--cost-model", "pipedream-code", "--levels", "8"}) ==
          "pp-plan: error: --levels: \"8\" is not devices@bandwidth; write for example 8@10GB/s,2@1GB/s\n");
    CHECK(error({"--cost-model", "dapple", "--strategy", "lingvo", "--servers", "2x8"}) ==
          "pp-plan: error: --strategy lingvo does not go with --cost-model dapple; use auto or dapple\n");
  }

  TEST_CASE("a baseline is a strategy of our own cost model") {
    const Folder folder;
    const Outcome outcome = folder.plan({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "32",
                                         "--strategy", "balance-by-time", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(pp::parse_json(outcome.out)["stages"].size() == 2);
  }

  TEST_CASE("compare prices every strategy, none faster than ours") {
    const Folder folder;
    const std::vector<std::string> request{"compare",     "profile.json", "--devices",    "3",
                                           "--bandwidth", "1e9",          "--mini-batch", "32"};
    const Outcome table = folder.run(request);
    CAPTURE(table.err);
    REQUIRE(table.code == 0);
    for (const char* name : {"auto", "data-parallel", "lingvo", "pipedream-code", "dapple"})
      CHECK(table.out.find(name) != std::string::npos);
    std::vector<std::string> as_json = request;
    as_json.emplace_back("--json");
    for (const pp::Json& row : pp::parse_json(folder.run(as_json).out)) {
      CAPTURE(row.dump());
      CHECK((row.contains("why_not") || row["slower"].get<double>() >= 0));
    }
  }

  TEST_CASE("a plan is exported as PipeDream's stage text") {
    const Folder folder;
    REQUIRE(folder
                .plan({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "32", "--cuts", "3", "-o",
                       "plan.json"})
                .code == 0);
    const Outcome outcome = folder.run({"export", "plan.json", "--profile", "profile.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.find("stage_id=1\n\t") != std::string::npos);  // the last layer, then the edges
    const Outcome missing = folder.run({"export", "plan.json"});
    CHECK(missing.code == 2);
    CHECK(missing.err ==
          "pp-plan: error: --format pipedream needs --profile: times and sizes stand in its lines\n");
  }

  TEST_CASE(
      "a plan is exported for torch as a folder, for Megatron as arguments; both say what they leave out") {
    const Folder folder;
    REQUIRE(folder
                .plan({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "32", "--cuts", "3",
                       "--replicas", "1-1", "--recompute", "always", "-o", "plan.json"})
                .code == 0);
    const std::vector<std::string> command{"export", "plan.json", "--format", "torch-pipelining", "-o", "out"};
    const Outcome refused = folder.run(command);
    CHECK(refused.code == 2);
    CHECK(refused.err.find("forwards of stage 0 do not run again") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(folder.path() / "out"));
    std::vector<std::string> lossy = command;
    lossy.emplace_back("--lossy");
    const Outcome outcome = folder.run(lossy);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("pp-plan: warning: left out: forwards of stage 0 do not run again") !=
          std::string::npos);
    for (const char* name : {"modules.json", "schedule.csv", "settings.json", "launch.py"})
      CHECK(std::filesystem::exists(folder.path() / "out" / name));
    CHECK(folder.run({"export", "plan.json", "--format", "torch-pipelining"})
              .err.find("name their folder with -o") != std::string::npos);
    CHECK(folder.run({"export", "plan.json", "--format", "deepspeed"}).err.find("torch-pipelining") !=
          std::string::npos);
  }
}

}  // namespace peers_test
