#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/plan/plan.h"
#include "libplan/price/predict.h"
#include "libprofile/core/file.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

TEST_SUITE_BEGIN("libplan/plan/plan_json");

namespace pp::plan::plan_json_test {
namespace {

const std::string kGolden = pp::test::test_data("plan/example_c.json");

/// Example C (tests/data/plan) as a 2-1 pipeline of six micro-batches.
Plan golden_plan() {
  PlanRequest request;
  request.mini_batch = 6;
  request.micro_batches = 6;
  request.cuts = {3};
  request.replicas = {2, 1};
  request.window = WindowRule::win;
  return std::get<Plan>(make_plan(test::example_c(), test::make_cluster(3), request));
}

std::string refusal(const Json& json) {
  return pp::test::error_of([&] { plan_from_json(json); }, ErrorKind::data);
}

Json golden_json() { return parse_json(read_file(kGolden)); }

}  // namespace

TEST_CASE("weights are not integers") {
  Json json = golden_json();
  json["training"]["dtype"] = "int64";
  CHECK(refusal(json) == "/training/dtype: weights cannot be int64; use one of float32, float64, bfloat16");
}

TEST_CASE("replicas take turns: a plan that says otherwise of its programs is refused") {
  Json json = golden_json();
  json["training"]["replica_routing"] = "split";
  CHECK(refusal(json) ==
        "/training/replica_routing: is \"split\"; replicas take turns, write \"round_robin\" or leave it out");
  json["training"].erase("replica_routing");
  CHECK(refusal(json) == "");
}

TEST_CASE("the golden file is what the planner writes, and reading it gives the same bytes") {
  const std::string golden = read_file(kGolden);
  CHECK(dump_json(to_json(golden_plan())) == golden);
  CHECK(dump_json(to_json(parse_plan(golden))) == golden);
  CHECK(parse_plan(golden) == golden_plan());
  CHECK(plan_hash(parse_plan(golden)) == plan_hash(golden_plan()));
  check_plan(parse_plan(golden));
}

TEST_CASE("a memory format is written where it is not contiguous") {
  CHECK_FALSE(golden_json()["training"].contains("memory_format"));
  Plan plan = golden_plan();
  plan.training.memory_format = MemoryFormat::channels_last;
  CHECK(to_json(plan)["training"]["memory_format"] == "channels_last");
  CHECK(parse_plan(dump_json(to_json(plan))) == plan);
  CHECK(plan_hash(plan) != plan_hash(golden_plan()));
}

TEST_CASE("a plan written by hand may leave out what only the planner knows") {
  Json json = golden_json();
  for (const char* key : {"context", "profile_hash", "cluster_hash", "levels", "tied", "predicted",
                          "certificate", "alternatives"}) {
    json.erase(key);
  }
  json["schedule"] = {{"name", "1f1b"}, {"weight_policy", "flush"}};
  for (Json& worker : json["workers"]) worker.erase("rank");
  const Plan plan = plan_from_json(json);
  check_plan(plan);
  CHECK(replicas_text(plan) == "2-1");
  CHECK(stages_text(plan) == "3|1");
  CHECK_THROWS_WITH(simulation_input(plan),
                    "/predicted/stages: has 0 entries for 2 stages; plan again, or price it with its profile");
}

TEST_CASE(
    "what waits between the halves of a backward comes from the profile's layers and is read and written") {
  Profile profile = test::example_c();
  std::int64_t waiting = 0;
  for (LayerProfile& layer : profile.layers) layer.points.front().waiting = Bytes(++waiting);
  PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = "zb-h1";
  request.cuts = {2};
  request.replicas = {1, 1};
  const Plan plan = std::get<Plan>(make_plan(profile, test::make_cluster(2), request));
  CHECK(plan.predicted.stages[0].waiting == Bytes(1 + 2));
  CHECK(parse_plan(dump_json(to_json(plan))) == plan);
  // A profile that does not say leaves it out: everything stays until W.
  const Plan unknown = std::get<Plan>(make_plan(test::example_c(), test::make_cluster(2), request));
  CHECK_FALSE(unknown.predicted.stages[0].waiting.has_value());
  CHECK_FALSE(to_json(unknown)["predicted"]["stages"][0].contains("waiting_bytes"));
}

TEST_CASE("streams are read and written") {
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.stages = 2;
  request.window = WindowRule::published;
  const Plan plan = std::get<Plan>(make_plan(test::example_c(), test::make_cluster(2), request));
  const Json json = to_json(plan);
  CHECK(json["workers"][0]["stream"]["prologue"] == "F0.0");
  CHECK(json["workers"][0]["stream"]["body"] == "F0.1 B0.0 U0");
  CHECK(json["workers"][0]["stream"]["period"] == 1);
  CHECK_FALSE(json["workers"][0].contains("program"));
  CHECK(plan_from_json(json) == plan);
}

TEST_CASE("reading is strict and names the pointer") {
  Json json = golden_json();
  json["extra"] = 1;
  CHECK(refusal(json).starts_with("/extra: unknown key"));
  json = golden_json();
  json["training"]["mini_batch"] = 1.5;
  CHECK(refusal(json).starts_with("/training/mini_batch: "));
  json = golden_json();
  json["stages"][0].erase("workers");
  CHECK(refusal(json).starts_with("/stages/0/workers: "));
  json = golden_json();
  json["workers"][1]["program"] = "F0.1 X0.1";
  CHECK(refusal(json).starts_with("/workers/1/program: operation 1, \"X0.1\": "));
  json = golden_json();
  json["workers"][1]["stream"] = Json::object();
  CHECK(refusal(json) == "/workers/1: needs either \"program\" or \"stream\"");
  json = golden_json();
  json["schedule"]["weight_policy"] = "stale";
  CHECK(refusal(json) ==
        "/schedule/weight_policy: unknown name \"stale\"; use one of flush, stash, vertical_sync, "
        "two_buffered, macrobatch, latest, predict, server, downpour, ssp, hogwild");
  json = golden_json();
  json["predicted"]["micro_batch_scale"] = {1, 0};
  CHECK(refusal(json) == "/predicted/micro_batch_scale/1: must be a number above 0, to 1e+30, not 0");
  json = golden_json();
  json["version"] = 2;
  CHECK(refusal(json).find("version") != std::string::npos);
}

TEST_CASE("mini-batches are cut as tensor_split does") {
  CHECK(micro_batch_sizes(10, 4) == std::vector{3, 3, 2, 2});
  CHECK(micro_batch_sizes(8, 4) == std::vector{2, 2, 2, 2});
  CHECK(micro_batch_sizes(3, 3) == std::vector{1, 1, 1});
  CHECK_THROWS_WITH(micro_batch_sizes(6, 8), "micro_batches = 8 exceeds the mini-batch of 6 samples");
  CHECK_THROWS_WITH(micro_batch_sizes(6, 0), "micro_batches = 0; give at least 1");
}

}  // namespace pp::plan::plan_json_test

TEST_SUITE_END();
