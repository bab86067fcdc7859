#include "librun/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>
#include <vector>

#include "librun/report/chart.h"
#include "tests/support/plans.h"
#include "tests/support/small_model.h"
#include "tests/support/xml.h"

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

using Points = std::vector<std::pair<double, double>>;

std::vector<std::smatch> matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  return {std::sregex_iterator(text.begin(), text.end(), expression), std::sregex_iterator()};
}

/// The curves of a chart by name, in the numbers of its axes: pixels are told by two ticks of each.
std::map<std::string, Points> curves_in(const std::string& page, const std::string& title) {
  const std::size_t from = page.find("<figcaption>" + title);
  REQUIRE(from != std::string::npos);
  const std::string figure = page.substr(from, page.find("</figure>", from) - from);
  const auto axis = [&](const std::string& tick, std::size_t pixel, double shift) {
    const std::vector<std::smatch> ticks = matches(figure, tick);
    REQUIRE(ticks.size() >= 2);
    const auto number_at = [](const std::smatch& m, std::size_t group) { return std::stod(m[group].str()); };
    const double first = number_at(ticks.front(), pixel) - shift, last = number_at(ticks.back(), pixel) - shift;
    const double low = number_at(ticks.front(), 3), high = number_at(ticks.back(), 3);
    return [=](double at) { return low + (at - first) / (last - first) * (high - low); };
  };
  // The labels of the vertical axis stand 4 pixels below its lines, those of the other one at 209.
  const auto x = axis(R"re(<text x="([^"]+)" y="(209)" text-anchor="middle" class="t">([^<]+)<)re", 1, 0);
  const auto y = axis(R"re(<text x="([^"]+)" y="([^"]+)" text-anchor="end" class="t">([^<]+)<)re", 2, 4);
  std::map<std::string, Points> curves;
  for (const std::smatch& path :
       matches(figure, R"re(<path d="([^"]+)" class="curve [^>]*><title>([^<]*)<)re")) {
    const std::string data = path[1].str();
    for (const std::smatch& point : matches(data, R"([ML]([^ ML]+) ([^ML]+))"))
      curves[path[2].str()].emplace_back(x(std::stod(point[1].str())), y(std::stod(point[2].str())));
  }
  return curves;
}

/// Of each, one after the other, after the step that it is of.
Points after_steps(const Json& values, double unit) {
  Points points;
  for (const Json& value : values) {
    if (!value.is_null())
      points.emplace_back(static_cast<double>(points.size() + 1), value.get<double>() / unit);
  }
  return points;
}

/// Of every epoch, at its last step.
Points of_epochs(const Json& report, const char* key, double unit = 1) {
  Points points;
  for (const Json& epoch : report["epochs"])
    points.emplace_back(epoch["last_step"].get<double>(), epoch[key].get<double>() / unit);
  return points;
}

/// As near as two decimals of a pixel tell.
bool near(const Points& drawn, const Points& wanted) {
  const auto same = [](double a, double b) { return std::abs(a - b) <= 1e-3 * std::max(1.0, std::abs(b)); };
  return std::ranges::equal(drawn, wanted, [&](const auto& a, const auto& b) {
    return same(a.first, b.first) && same(a.second, b.second);
  });
}

/// The sections that are made here, as XML.
std::string sections_error(const std::string& page) {
  const std::size_t from = page.find("<section class=\"view\" data-title=");
  return pp::test::xml_error("<all>" + page.substr(from, page.find("</main>") - from) + "</all>");
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
    CHECK(sections_error(page).empty());
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
    for (const char* text : {">Loss</figcaption>", "data-title=\"Operations\"", "data-title=\"Epochs\""})
      CHECK(has(page, text));
  }

  TEST_CASE("every curve of the page is what the report's document says") {
    RunReport longer = report();
    longer.steps = 6;
    longer.step_losses = {3, 2.5, 2, 1.5, 1.25, 1};
    longer.epochs = {{0, 2.75, 2.5, 0.25, 100, 2}, {1, 1.75, 2, 0.5, 100, 4}, {2, 1.125, 1.5, 0.75, 100, 6}};
    longer.history = {};
    for (int step = 0; step < 6; ++step) {
      const StepFigures first{Seconds(3), Bytes(2048 + 128 * step)},
          second{Seconds(3), Bytes(4096 - 256 * step)};
      longer.history.add(Seconds(5 + 0.25 * step), std::vector<StepFigures>{first, second});
    }
    const Json document = to_json(longer);
    const std::string page = page_of(longer);
    std::map<std::string, Points> loss = curves_in(page, "Loss");
    CHECK(loss.size() == 3);
    CHECK(near(loss["of a step"], after_steps(document["step_losses"], 1)));
    CHECK(near(loss["training, of an epoch"], of_epochs(document, "train_loss")));
    CHECK(near(loss["test"], of_epochs(document, "test_loss")));
    CHECK(near(curves_in(page, "Accuracy on the test set, %")["test"],
               of_epochs(document, "test_accuracy", 0.01)));
    CHECK(near(curves_in(page, "Step time, ms")["measured"], after_steps(document["history"]["step_s"], 1e-3)));
    longer.evaluations = {{0, 1, 3}, {1, 3, 2.25}, {2, 6, 1.5}};
    CHECK(near(curves_in(page_of(longer), "Loss")["test"], {{1, 3}, {3, 2.25}, {6, 1.5}}));
    std::map<std::string, Points> memory = curves_in(page, "Peak memory of a step, KiB");
    for (const int worker : {0, 1}) {
      CHECK(near(memory["worker " + std::to_string(worker)],
                 after_steps(document["history"]["peak_bytes"][worker], 1024)));
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
    CHECK(sections_error(page).empty());
    const Json data = data_in(page);
    CHECK(data["plans"].size() == 2);
    REQUIRE(data["timelines"].size() == 4);
    CHECK(data["timelines"][3]["name"] == "b.json, measured, steps 1 to 2");
    CHECK(data["timelines"][3]["plan"] == 1);
    std::size_t charts = 0;
    for (std::size_t at = page.find("<figure"); at != std::string::npos; at = page.find("<figure", at + 1))
      ++charts;
    CHECK(charts == 4);
    for (const char* text :
         {">a.json: of a step<", ">b.json: of a step<", ">b.json: predicted<", "<h2>b.json</h2>"})
      CHECK(has(page, text));
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
    CHECK(sections_error(page).empty());
    CHECK(has(page, "(worker 1) takes 2.5 times as long as promised since step 41"));
    CHECK(has(page, "data-title=\"Starts\""));
    CHECK(has(page, "1f1b &lt;of two&gt;"));
    CHECK_FALSE(has(page_of(report()), "Starts"));
  }

  TEST_CASE("an interrupted run without a step still has its page") {
    RunReport none = report();
    none.step_losses.clear();
    none.epochs.clear();
    none.op_times.clear();
    none.history = {};
    none.last_steps = {};
    const std::string page = page_of(none);
    CHECK(sections_error(page).empty());
    CHECK(data_in(page)["timelines"].empty());
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
    const NamedReport named{evil, &hostile};
    const std::string page = report_html({&named, 1});
    CHECK(sections_error(page).empty());
    CHECK_FALSE(has(page, "<script src"));
    CHECK(has(page, "&lt;script src=//x&gt;&amp;&quot;"));
    CHECK(page.find("</style>") == page.find("</style>\n</head>"));
    CHECK(data_in(page)["plans"][0]["name"] == evil);
  }

  TEST_CASE("the page of a long run stays small") {
    RunReport longer = report();
    longer.step_losses.assign(1000000, 0.5);
    longer.epochs.assign(10000, longer.epochs[0]);
    for (int i = 0; i < 100000; ++i) longer.history.add(Seconds(6), std::vector<StepFigures>(2));
    const std::string page = page_of(longer);
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

  TEST_CASE("a chart that ends below its highest points says so, and draws them at its edge") {
    // The axis goes to 15 ms instead of 200: the first point stands at its top, where 15 ms would stand.
    const std::string svg = chart_html({.title = "Step time",
                                        .x_title = "step",
                                        .unit = ChartUnit::seconds,
                                        .from_zero = true,
                                        .curves = {{"measured", {{1, 0.2}, {2, 0.01}, {3, 0.01}}}},
                                        .most = 0.015,
                                        .note = "the first goes up to 200 ms"});
    CHECK(has(svg, "Step time, ms (the first goes up to 200 ms)</figcaption>"));
    CHECK(has(svg, ">15</text>"));
    CHECK_FALSE(has(svg, ">200</text>"));
    CHECK(has(svg, "class=\"curve c0\""));
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

}  // namespace html_test
