#include "librun/report/html.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "librun/report/chart.h"
#include "librun/report/markup.h"
#include "tests/support/plans.h"
#include "tests/support/xml.h"

#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::run;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// As XML, which has no <!DOCTYPE html>.
std::string page_error(const std::string& page) { return pp::test::xml_error(page.substr(page.find("<html"))); }

/// Two layers on two workers, two steps of one micro-batch; the plan promises half of what was measured.
RunReport report() {
  const Json json = parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [8]}],
    "targets": [{"name": "y", "dtype": "int64", "shape": []}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 16}},
               {"name": "b", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 4}}],
    "outputs": ["b"], "loss": {"op": "cross_entropy", "inputs": ["b", "y"]}})");
  RunReport report;
  report.plan = make_plan({.model = model_from_json(json), .cuts = {1}, .micro_batches = 1});
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
  TEST_CASE("the page has both timelines on one time axis, and what was measured beside what was promised") {
    const std::string page = report_html(report());
    CHECK(page_error(page).empty());
    CHECK(has(page, ">predicted</text>"));
    CHECK(has(page, ">measured, steps 1 to 2</text>"));
    // Predicted 2 steps of 3 s, measured 7 s: F0.0 of 0.5 s is half as wide as that of 1 s. The names take 108
    // of 1180 pixels, the figures 112: 960 for 7 s.
    CHECK(has(page, "in steady state 3 s per step"));
    CHECK(has(page, "in steady state 6 s per step"));
    const auto width_of = [&](const std::string& tooltip) {
      const std::size_t title = page.find(tooltip);
      REQUIRE(title != std::string::npos);
      return std::stod(page.substr(page.rfind("width=\"", title) + 7));
    };
    CHECK(2 * width_of("F0.0 forward\nworker 0, 0 to 500 ms: 500 ms") ==
          doctest::Approx(width_of("F0.0 forward\nworker 0, 0 to 1000 ms: 1 s")).epsilon(0.001));
    for (const char* text : {"75.0 %", "2 KiB", "4 KiB", "completed", ">Loss</figcaption>", "after 1 epoch<"})
      CHECK(has(page, text));
  }

  // Worker 0 runs a backward of stage 1, too: its row has a longer name than predicted.
  TEST_CASE("both time axes begin at one place, whatever their rows are called") {
    RunReport other = report();
    other.last_steps.ops.push_back(
        {{WorkerId{0}, {plan::OpKind::backward, StageId{1}, 0}, Seconds(8), Seconds(9)},
         Bytes(100),
         Bytes(50)});
    const std::string page = report_html(other);
    CHECK(has(page, ">stages 0, 1: a; b</text>"));
    std::vector<double> begins;  // of the lines at 0
    const std::string picture = "class=\"timeline\"";
    for (std::size_t at = page.find(picture); at != std::string::npos; at = page.find(picture, at + 1)) {
      const std::size_t grid = page.find("class=\"grid\"", at);
      begins.push_back(std::stod(page.substr(page.rfind("x1=\"", grid) + 4)));
    }
    REQUIRE(begins.size() == 2);
    CHECK(begins[0] == begins[1]);
  }

  TEST_CASE("a plan without costs has the measured timeline alone") {
    RunReport bare = report();
    bare.plan.predicted = {};
    const std::string page = report_html(bare);
    CHECK(page_error(page).empty());
    CHECK_FALSE(has(page, ">predicted</text>"));
    CHECK(has(page, ">measured, steps 1 to 2</text>"));
    CHECK(has(page, "not predicted"));
  }

  TEST_CASE("the page names devices that were slow, and lists the starts of a training that kept going") {
    RunReport kept = report();
    kept.slow_devices = {{WorkerId{1}, 41, std::nullopt, 2.5}};
    kept.lost_attempts = {{"signal 9 (Killed)", 0, 9, 8, Seconds(2.5), "1f1b <of two>", "a, b", Seconds(0.5)}};
    kept.resumed = ResumedFrom{"ck/step-8", 8};
    const std::string page = report_html(kept);
    CHECK(page_error(page).empty());
    CHECK(has(page, "(worker 1) takes 2.5 times as long as promised since step 41"));
    CHECK(has(page, "Starts</h2>"));
    CHECK(has(page, "1f1b &lt;of two&gt;"));
    CHECK_FALSE(has(report_html(report()), "Starts</h2>"));
  }

  TEST_CASE("an interrupted run without a step still has its page") {
    RunReport none = report();
    none.step_losses.clear();
    none.epochs.clear();
    none.op_times.clear();
    none.history = {};
    none.last_steps = {};
    const std::string page = report_html(none);
    CHECK(page_error(page).empty());
    CHECK_FALSE(has(page, "<figure"));
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
    const std::string page = report_html(hostile);
    CHECK(page_error(page).empty());
    CHECK_FALSE(has(page, "<script"));
    CHECK(has(page, "&lt;script src=//x&gt;&amp;&quot;"));
    CHECK(page.find("</style>") == page.find("</style></head>"));
    std::string rest = page;
    for (const std::string& known :
         {std::string("http://www.w3.org/2000/svg"), std::string("src=//x"), std::string("url(#hatch)")}) {
      for (std::size_t at; (at = rest.find(known)) != std::string::npos;) rest.erase(at, known.size());
    }
    for (const char* loads : {"http:", "https:", "src=", "href", "@import", "url("})
      CHECK_FALSE(has(rest, loads));
  }

  TEST_CASE("the page of a long run stays small") {
    RunReport longer = report();
    longer.step_losses.assign(1000000, 0.5);
    longer.epochs.assign(10000, longer.epochs[0]);
    for (int i = 0; i < 100000; ++i) longer.history.add(Seconds(6), std::vector<StepFigures>(2));
    const std::string page = report_html(longer);
    CHECK(page.size() < 200000);
    CHECK(has(page, "the last 100 of 10000"));
  }
}

TEST_SUITE("librun/report/chart") {
  TEST_CASE("axes end at round numbers of a unit that suits them") {
    // 3 to 11 ms from zero: ticks every 5 ms up to 15.
    const std::string svg = chart_html({.title = "Step time",
                                        .x_title = "step",
                                        .unit = ChartUnit::seconds,
                                        .from_zero = true,
                                        .curves = {{"measured", {{1, 0.003}, {2, 0.011}}}}});
    CHECK(has(svg, "Step time, ms</figcaption>"));
    for (const char* tick : {">0</text>", ">5</text>", ">10</text>", ">15</text>"}) CHECK(has(svg, tick));
    CHECK_FALSE(has(svg, ">20</text>"));
    CHECK(pp::test::xml_error(svg).empty());
  }

  TEST_CASE(
      "numbers that are none are left out, one point is a dot, equal ones a line; nothing is no picture") {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    constexpr double kMost = std::numeric_limits<double>::max();
    const auto chart = [](std::vector<std::pair<double, double>> points) {
      return chart_html({.title = "Loss", .x_title = "step", .curves = {{"a", std::move(points)}}});
    };
    CHECK(chart({}).empty());
    CHECK(chart({{1, kNone}}).empty());
    CHECK(has(chart({{1, 2}}), "<rect"));
    CHECK(has(chart({{1, 2}, {2, kNone}, {3, 2}}), "<path"));
    for (const std::string& picture :
         {chart({{1, -kMost}, {2, kMost}}), chart({{1, 0}, {2, 0}}), chart({{1, 1e-300}, {2, 2e-300}})}) {
      CHECK(picture.size() < 4000);
      CHECK_FALSE(has(picture, "nan"));
      CHECK_FALSE(has(picture, "inf"));
    }
  }

  TEST_CASE("a ratio's bar goes left below 1 and right above it, full at half and at double") {
    CHECK(has(ratio_html(2), "left:50%;width:50%"));
    CHECK(has(ratio_html(0.5), "left:0%;width:50%"));
    CHECK(has(ratio_html(8), "left:50%;width:50%"));
    CHECK(ratio_html(0).empty());
  }
}
