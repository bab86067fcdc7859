#include "libplan/explorer/plan_data.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/model/model_graph.h"
#include "tests/support/plans.h"
#include "tests/support/small_model.h"

#include "tests/support/doctest.h"

namespace pp::plan::plan_data_test {
namespace {

/// Layers a and b on a stage each, of which the first has two replicas, on two nodes.
Plan sample() {
  Plan plan =
      make_plan({.model = pp::test::small_model(), .cuts = {1}, .replicas = {2, 1}, .memory = Bytes(1000)});
  for (std::size_t w = 0; w < 3; ++w) plan.devices[w].node = w < 2 ? "n" : "m";
  plan.devices[1].memory = Bytes(900);
  plan.predicted.step = Seconds(2);
  plan.predicted.stages.resize(2);
  plan.predicted.stages[0].forward = Seconds(0.25);
  plan.predicted.stages[0].backward = Seconds(0.5);
  plan.predicted.stages[0].saved = Bytes(64);
  plan.predicted.edges = {{StageId{0}, StageId{1}, Bytes(32), Bytes(48)}};
  plan.predicted.links = {{WorkerId{0}, WorkerId{2}, Bytes(320)}};
  plan.predicted.workers[1].busy = Seconds(1.5);
  plan.predicted.workers[1].memory.weights = Bytes(100);
  plan.predicted.workers[1].memory.saved = Bytes(128);
  plan.predicted.workers[1].memory.peak = Bytes(228);
  plan.levels = {{.name = "process",
                  .devices = 3,
                  .bandwidth = BytesPerSecond(1e9),
                  .latency = Seconds(1e-5),
                  .samples = {}}};
  plan.alternatives = {{"1f1b", "2", "3", 4, Seconds(3), Bytes(500), "", "50 % slower"},
                       {"1f1b", "1|1", "2-1", 4, Seconds(2), Bytes(228), "", "the same"}};
  return plan;
}

TEST_SUITE("libplan/explorer/plan data") {
  TEST_CASE("a stage has its layers, times, memory of the worker that holds most, and what it sends") {
    const Json data = plan_data(sample(), "plan.json", "small: 1f1b");
    CHECK(data["name"] == "plan.json");
    CHECK(data["title"] == "small: 1f1b");
    CHECK(data["step"] == 2.0);
    CHECK(data["peak"] == 228);
    const Json& first = data["stages"][0];
    CHECK(first["layers"] == Json({"a"}));
    CHECK(first["workers"] == Json({0, 1}));
    CHECK(first["times"] == Json({{"F", 0.25}, {"B", 0.5}}));
    CHECK(first["busy"] == 1.5);
    CHECK(first["memory"] == Json({100, 0, 0, 0, 0, 128, 0}));  // as kMemoryParts: saved is the sixth
    CHECK(first["peak"] == 228);
    CHECK(first["limit"] == 900);  // of its smallest device
    CHECK(first["saved"] == 64);
    CHECK(first["sends"] == 32);
    CHECK(first["returns"] == 0);
    CHECK(data["stages"][1]["returns"] == 48);
  }

  TEST_CASE("workers stand on nodes and devices, and name their stages") {
    const Json data = plan_data(sample(), "plan.json", "");
    CHECK(data["nodes"] == Json({"n", "m"}));
    CHECK(data["workers"] == Json({{0, "cpu:0", 1000, 0}, {0, "cpu:1", 900, 0}, {1, "cpu:2", 1000, 1}}));
    CHECK(data["links"] == Json({{0, 2, 320}}));
    CHECK(data["levels"] == Json({{"process", 3, 1e9, 1e-5}}));
    CHECK(data["slots"] == Json({0, 1, 2}));
  }

  TEST_CASE("more links than a page holds are added up by nodes") {
    Plan plan = sample();
    plan.predicted.links.assign(kMostLinks + 1, {WorkerId{1}, WorkerId{2}, Bytes(2)});
    plan.predicted.links.front().from = WorkerId{2};  // within the second node
    // Nodes 0 and 1 as -1 and -2: 20,000 links of 2 bytes from the first to the second.
    CHECK(plan_data(plan, "", "")["links"] == Json({{-1, -2, 40'000}, {-2, -2, 2}}));
  }

  TEST_CASE("alternatives that are among the plans of the page are marked") {
    Json plans = Json::array({plan_data(sample(), "plan.json", "")});
    mark_alternatives(plans);
    CHECK_FALSE(plans[0]["alternatives"][0].contains("shown"));
    CHECK(plans[0]["alternatives"][1]["shown"] == 0);
    plans[0]["step"] = 2.1;
    plans[0]["alternatives"][1].erase("shown");
    mark_alternatives(plans);
    CHECK_FALSE(plans[0]["alternatives"][1].contains("shown"));
  }

  TEST_CASE("a plan without a prediction has stages and workers alone") {
    Plan plan = sample();
    plan.predicted = {};
    const Json data = plan_data(plan, "plan.json", "");
    CHECK_FALSE(data["stages"][0].contains("times"));
    CHECK_FALSE(data["stages"][0].contains("memory"));
    CHECK(data["stages"][0]["sends"] == 0);
    CHECK(data["links"].empty());
  }
}

}  // namespace
}  // namespace pp::plan::plan_data_test
