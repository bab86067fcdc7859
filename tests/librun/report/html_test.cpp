#include "librun/report/html.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tests/support/plans.h"
#include "tests/support/small_model.h"

#include "tests/support/doctest.h"

namespace html_test {

using namespace pp;
using namespace pp::run;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string page_of(const RunReport& report) {
  const NamedReport named{"report.json", &report};
  return report_html({&named, 1});
}

/// What the page's script reads.
Json data_in(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const std::size_t from = page.find(begin) + begin.size();
  return parse_json(page.substr(from, page.find("</script>", from) - from));
}

/// Two layers on two workers, two steps of one micro-batch; the plan promises half of what was measured.
RunReport report() {
  RunReport report;
  report.plan = make_plan({.model = pp::test::small_model(), .cuts = {1}, .micro_batches = 1});
  plan::StageCosts costs;
  costs.forward = Seconds(0.5);
  costs.backward = Seconds(1);
  costs.weights = Bytes(1000);
  report.plan.predicted.stages.assign(2, costs);
  report.plan.predicted.step = Seconds(3);
  report.plan.predicted.workers[1].memory.peak = Bytes(2048);
  report.exit_reason = "completed";
  report.steps = 2;
  report.step = Seconds(6);
  report.step_losses = {2, 1};
  report.epochs = {{0, 1.5, 1.25, 0.75, 100, 2, Seconds(12), Seconds(0.5)}};
  report.workers.resize(2);
  report.workers[1].id = WorkerId{1};
  report.workers[1].peak = Bytes(4096);
  report.op_times = {{plan::OpKind::forward, StageId{0}, 2, Seconds(0.5), Seconds(1)}};
  for (int step = 0; step < 2; ++step) {
    report.history.add(Seconds(6),
                       std::vector<StepFigures>{{Seconds(3), Bytes(100)}, {Seconds(3), Bytes(4096)}});
    report.last_steps.ops.push_back(
        {{WorkerId{0}, {plan::OpKind::forward, StageId{0}, 0}, Seconds(6 * step), Seconds(6 * step + 1)},
         Bytes(100),
         Bytes(50)});
  }
  report.last_steps.first_step = 1;
  report.last_steps.steps = 2;
  return report;
}

}  // namespace

TEST_SUITE("librun/report/html") {
  TEST_CASE("the page has both timelines, and what was measured beside what was promised") {
    const std::string page = page_of(report());
    const Json data = data_in(page);
    REQUIRE(data["timelines"].size() == 2);
    // Of the plan, two steps of 0.5 s forward on each worker and 1 s back; measured 0 to 1 s and 6 to 7 s.
    CHECK(data["timelines"][0]["name"] == "predicted");
    CHECK(data["timelines"][0]["step"] == 3.0);
    CHECK(data["timelines"][1]["name"] == "measured, steps 1 to 2");
    CHECK(data["timelines"][1]["step"] == 6.0);
    CHECK(data["timelines"][1]["length"] == 7.0);
    CHECK(data["timelines"][1]["operations"] == 2);
    const Json tiles = data["plans"][0]["tiles"];
    CHECK(tiles[0] == Json({"step time", "6 s", "predicted 3 s"}));
    CHECK(tiles[3] == Json({"highest peak of a worker", "4 KiB", "predicted 2 KiB"}));
    CHECK(tiles[4] == Json({"test accuracy", "75.0 %", "after 1 epoch"}));
    CHECK(has(data["plans"][0]["title"].get<std::string>(), "completed"));
    for (const char* text : {"Over the run", "Operations", "Workers", "Epochs", "Settings"})
      CHECK(has(page, "data-title=\"" + std::string(text) + "\""));
    CHECK(data["reports"][0]["promised"][1]["peak_bytes"] == 2048);
    CHECK(data["reports"][0]["workers"][1]["peak_bytes"] == 4096);
  }

  TEST_CASE("the page has the document, losses at their steps") {
    RunReport longer = report();
    longer.steps = 6;
    longer.resumed = ResumedFrom{"ck/step-10", 10};
    longer.step_losses = {2.5, std::numeric_limits<double>::quiet_NaN(), 1};
    longer.evaluations = {{0, 11, 3}, {1, 13, 2.25}, {2, 16, 1.5}};
    Json document = to_json(longer);
    Json shown = data_in(page_of(longer))["reports"][0];
    CHECK(shown["step_losses"] == Json({{14, 2.5}, {16, 1}}));  // the last three of six
    for (const char* changed : {"plan", "last_steps", "step_losses"}) document.erase(changed);
    for (const auto& [key, value] : document.items()) {
      CAPTURE(key);
      CHECK(shown[key] == value);
    }
  }

  TEST_CASE("a partial mini-batch is named") {
    RunReport partial = report();
    partial.last_steps.samples = {8, 3};
    CHECK(data_in(page_of(partial))["timelines"][1]["name"] ==
          "measured, steps 1 to 2 (step 2: 3 of 8 samples)");
    partial.settings["accumulate"] = std::int64_t{2};
    CHECK(data_in(page_of(partial))["timelines"][1]["name"] ==
          "measured, steps 1 to 2 (step 1: 8 of 16 samples, step 2: 3 of 16 samples)");
    partial.last_steps.samples = {16, 16};
    CHECK(data_in(page_of(partial))["timelines"][1]["name"] == "measured, steps 1 to 2");
  }

  TEST_CASE("several reports are on one page, their curves in one chart") {
    const RunReport first = report(), second = report();
    const std::vector<NamedReport> both{{"a.json", &first}, {"b.json", &second}};
    const std::string page = report_html(both);
    const Json data = data_in(page);
    CHECK(data["plans"].size() == 2);
    REQUIRE(data["timelines"].size() == 4);
    CHECK(data["timelines"][3]["name"] == "b.json, measured, steps 1 to 2");
    CHECK(data["timelines"][3]["plan"] == 1);
    REQUIRE(data["reports"].size() == 2);
    CHECK(data["reports"][1]["name"] == "b.json");
  }

  TEST_CASE("a plan without costs has the measured timeline alone") {
    RunReport bare = report();
    bare.plan.predicted = {};
    const std::string page = page_of(bare);
    const Json data = data_in(page);
    REQUIRE(data["timelines"].size() == 1);
    CHECK(data["timelines"][0]["name"] == "measured, steps 1 to 2");
    CHECK(has(page, "not predicted"));
  }

  TEST_CASE("the page names devices that were slow, and lists the starts of a training that kept going") {
    RunReport kept = report();
    kept.slow_devices = {{WorkerId{1}, 41, std::nullopt, 2.5}};
    kept.lost_attempts = {{"signal 9 (Killed)", 0, 9, 8, Seconds(2.5), "1f1b <of two>", "a, b", Seconds(0.5)}};
    kept.resumed = ResumedFrom{"ck/step-8", 8};
    const std::string page = page_of(kept);
    const Json shown = data_in(page)["reports"][0];
    CHECK(has(shown["slow"][0].get<std::string>(),
              "(worker 1) takes 2.5 times as long as promised since step 41"));
    CHECK(shown["lost_attempts"][0]["plan"] == "1f1b <of two>");
    CHECK(has(page, "data-title=\"Starts\""));
    CHECK_FALSE(has(page_of(report()), "data-title=\"Starts\""));
  }

  TEST_CASE("an interrupted run without a step still has its page") {
    RunReport none = report();
    none.step_losses.clear();
    none.epochs.clear();
    none.op_times.clear();
    none.history = {};
    none.last_steps = {};
    const std::string page = page_of(none);
    CHECK(data_in(page)["timelines"].empty());
    CHECK_FALSE(has(page, "data-title=\"Over the run\""));
  }

  TEST_CASE("names, settings and contexts are escaped, and nothing is loaded from anywhere") {
    const std::string evil = "</style><script src=//x>&\"'";
    RunReport hostile = report();
    hostile.plan.model.name = evil;
    hostile.plan.stages[0].layers = {evil};
    hostile.plan.devices[0].node = evil;
    hostile.settings[evil] = evil;
    hostile.context[evil] = evil;
    hostile.plan_hash = hostile.exit_reason = evil;
    const NamedReport named{evil, &hostile};
    const std::string page = report_html({&named, 1});
    CHECK_FALSE(has(page, "<script src"));
    CHECK(data_in(page)["reports"][0]["settings"][evil] == evil);
    CHECK(page.find("</style>") == page.find("</style>\n</head>"));
    CHECK(data_in(page)["plans"][0]["name"] == evil);
  }

  TEST_CASE("the page of a long run stays small") {
    RunReport longer = report();
    longer.step_losses.assign(1000000, 0.5);
    longer.epochs.assign(10000, longer.epochs[0]);
    for (int i = 0; i < 100000; ++i) longer.history.add(Seconds(6), std::vector<StepFigures>(2));
    const std::string page = page_of(longer);
    CHECK(page.size() < 250000);
    const Json shown = data_in(page)["reports"][0];
    CHECK(shown["step_losses"].size() <= 480);
    CHECK(shown["epoch_count"] == 10000);
    CHECK(shown["epochs"].size() <= 480);
  }
}

}  // namespace html_test
