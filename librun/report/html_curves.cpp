#include "librun/report/html_curves.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "libplan/explorer/plan_data.h"
#include "librun/report/chart.h"
#include "librun/report/html.h"

namespace pp::run {
namespace {

constexpr int kColors = 8;
constexpr double kFarAbove = 1.5;  ///< a first step so many times all others would flatten the curve

using Reports = std::span<const NamedReport>;

double first_step(const RunReport& report) {
  return report.resumed ? static_cast<double>(report.resumed->step) : 0;
}

/// `a.json: measured` of several, `measured` of one.
std::string name_in(Reports reports, std::size_t r, const std::string& curve) {
  return reports.size() > 1 ? reports[r].name + ": " + curve : curve;
}

/// Of several reports each has a colour; of one each curve.
int color_of(Reports reports, std::size_t r, int of_curve) {
  return reports.size() > 1 ? static_cast<int>(r % kColors) : of_curve;
}

/// Over the steps of the runs.
Chart chart_of(Reports reports, std::string title) {
  Chart chart{.title = std::move(title), .x_title = "step"};
  chart.first_x = std::numeric_limits<double>::max();
  for (const NamedReport& report : reports) {
    const double first = first_step(*report.report);
    chart.first_x = std::min(chart.first_x, first);
    chart.last_x = std::max(chart.last_x, first + static_cast<double>(report.report->steps));
  }
  return chart;
}

Curve curve_of(std::string name, int color, const auto& results, auto step, auto&& value) {
  Curve curve{std::move(name), {}, color, results.size() <= 40};
  for (const auto& result : results) {
    if (const std::optional<double> y = value(result); y && std::isfinite(*y))
      curve.points.emplace_back(static_cast<double>(result.*step), *y);
  }
  return curve;
}

/// A curve of the evaluations by steps where there are any, else of the epochs; `value` reads either.
Curve of_tests(std::string name, int color, const RunReport& report, auto&& value) {
  if (report.evaluations.empty())
    return curve_of(std::move(name), color, report.epochs, &EpochReport::last_step, value);
  return curve_of(std::move(name), color, report.evaluations, &EvaluationReport::step, value);
}

Curve step_losses(const RunReport& report, std::string name, int color) {
  Curve steps{std::move(name), {}, color};
  const auto listed = std::ssize(report.step_losses);  // the last ones
  const double before =
      first_step(report) + static_cast<double>(std::max<std::int64_t>(report.steps - listed, 0));
  for (std::size_t i = 0; i < report.step_losses.size(); ++i)
    steps.points.emplace_back(before + static_cast<double>(i + 1), report.step_losses[i]);
  return steps;
}

std::string loss_chart(Reports reports) {
  Chart chart = chart_of(reports, "Loss");
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const RunReport& report = *reports[r].report;
    chart.curves.push_back(step_losses(report, name_in(reports, r, "of a step"), color_of(reports, r, 5)));
    if (reports.size() > 1) continue;
    if (report.epochs.size() > 1) {
      chart.curves.push_back(
          curve_of("training, of an epoch", 0, report.epochs, &EpochReport::last_step,
                   [](const EpochReport& epoch) { return std::optional(epoch.train_loss); }));
    }
    Curve test = of_tests("test", 1, report, [](const auto& one) { return one.test_loss; });
    if (!test.points.empty()) chart.curves.push_back(std::move(test));
  }
  return chart_html(chart);
}

std::string accuracy_chart(Reports reports) {
  Chart chart = chart_of(reports, "Accuracy on the test set");
  chart.unit = ChartUnit::share;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    chart.curves.push_back(of_tests(name_in(reports, r, "test"), color_of(reports, r, 1), *reports[r].report,
                                    [](const auto& one) { return one.test_accuracy; }));
  }
  return chart_html(chart);
}

/// Where sample i of the history ends.
double last_step(const RunReport& report, std::size_t i) {
  const StepHistory& history = report.history;
  return first_step(report) +
         static_cast<double>(std::min(history.steps, history.stride * (static_cast<std::int64_t>(i) + 1)));
}

/// The first steps, which fill caches and pools, may take many times what the others take: the axis ends above
/// the others then, and the title says how far the first ones go.
void leave_out_the_first(Chart& chart) {
  double others = 0, firsts = 0;
  for (const ChartLevel& level : chart.levels) others = std::max(others, level.value);
  for (const Curve& curve : chart.curves) {
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      double& most = i == 0 ? firsts : others;
      most = std::max(most, curve.points[i].second);
    }
  }
  if (others <= 0 || firsts <= kFarAbove * others) return;
  chart.most = others;
  chart.note = "the first goes up to " + to_text(Seconds(firsts));
}

std::string time_chart(Reports reports) {
  Chart chart = chart_of(reports, "Step time");
  chart.unit = ChartUnit::seconds;
  chart.from_zero = true;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const RunReport& report = *reports[r].report;
    const int color = color_of(reports, r, 0);
    Curve times{name_in(reports, r, "measured"), {}, color};
    for (std::size_t i = 0; i < report.history.time.size(); ++i)
      times.points.emplace_back(last_step(report, i), report.history.time[i].count());
    chart.curves.push_back(std::move(times));
    if (const double promise = report.plan.predicted.step.count(); promise > 0) {
      chart.levels.push_back(
          {name_in(reports, r, "predicted"), promise, "c" + std::to_string(color) + " dashed"});
    }
  }
  leave_out_the_first(chart);
  return chart_html(chart);
}

/// Those that hold most, when there are more than colours.
std::vector<std::size_t> workers_to_draw(const RunReport& report) {
  std::vector<std::size_t> workers(report.history.peak.size());
  std::iota(workers.begin(), workers.end(), std::size_t{0});
  if (workers.size() <= kColors) return workers;
  const auto peak = [&](std::size_t w) { return report.workers[w].peak; };
  std::ranges::stable_sort(workers, std::greater{}, peak);
  workers.resize(kColors);
  std::ranges::sort(workers);
  return workers;
}

/// A curve for each worker of one run.
std::string memory_chart(Reports reports) {
  const RunReport& report = *reports.front().report;
  const std::vector<std::size_t> workers = workers_to_draw(report);
  const bool all = workers.size() == report.history.peak.size();
  Chart chart =
      chart_of(reports, all ? "Peak memory of a step" : "Peak memory of a step, of the workers that hold most");
  chart.unit = ChartUnit::bytes;
  chart.from_zero = true;
  double most = 0;
  for (std::size_t c = 0; c < workers.size(); ++c) {
    const std::size_t w = workers[c];
    const std::string name = "worker " + std::to_string(w);
    Curve curve{name, {}, static_cast<int>(c)};
    for (std::size_t i = 0; i < report.history.peak[w].size(); ++i) {
      const auto bytes = static_cast<double>(report.history.peak[w][i].value);
      curve.points.emplace_back(last_step(report, i), bytes);
      most = std::max(most, bytes);
    }
    chart.curves.push_back(std::move(curve));
    if (w >= report.plan.predicted.workers.size()) continue;
    const auto promise = static_cast<double>(report.plan.predicted.workers[w].memory.peak.value);
    if (promise > 0)
      chart.levels.push_back({name + " predicted", promise, "c" + std::to_string(c) + " dashed"});
  }
  // A limit far above what is held would flatten the picture; the table of workers has it.
  const std::vector<Bytes> limits = plan::picture_names(report.plan).limits;
  Bytes limit;
  for (const std::size_t w : workers) {
    if (limits[w] > Bytes(0)) limit = limit > Bytes(0) ? std::min(limit, limits[w]) : limits[w];
  }
  if (limit > Bytes(0) && static_cast<double>(limit.value) <= 2 * most)
    chart.levels.push_back({"limit of the device", static_cast<double>(limit.value), "bad dashed"});
  return chart_html(chart);
}

/// A curve for each of several runs: of the worker that holds most.
std::string highest_chart(Reports reports) {
  Chart chart = chart_of(reports, "Peak memory of a step, of the worker that holds most");
  chart.unit = ChartUnit::bytes;
  chart.from_zero = true;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const RunReport& report = *reports[r].report;
    Curve curve{reports[r].name, {}, color_of(reports, r, 0)};
    for (std::size_t i = 0; i < report.history.time.size(); ++i) {
      Bytes most;
      for (const std::vector<Bytes>& worker : report.history.peak) most = std::max(most, worker[i]);
      curve.points.emplace_back(last_step(report, i), static_cast<double>(most.value));
    }
    chart.curves.push_back(std::move(curve));
  }
  return chart_html(chart);
}

}  // namespace

std::string curves_html(Reports reports) {
  return loss_chart(reports) + accuracy_chart(reports) + time_chart(reports) +
         (reports.size() > 1 ? highest_chart(reports) : memory_chart(reports));
}

std::string epochs_html(std::span<const EpochReport> epochs) {
  constexpr std::size_t kMost = 100;
  if (epochs.empty()) return "";
  const std::size_t left_out = epochs.size() - std::min(epochs.size(), kMost);
  std::vector<std::vector<std::string>> rows;
  for (const EpochReport& epoch : epochs.subspan(left_out)) {
    rows.push_back({std::to_string(epoch.epoch), std::to_string(epoch.last_step), number_text(epoch.train_loss),
                    epoch.test_loss ? number_text(*epoch.test_loss) : "-",
                    epoch.test_accuracy ? share_text(*epoch.test_accuracy) : "-",
                    number_text(epoch.samples_per_s),
                    epoch.evaluation.count() > 0 ? to_text(epoch.evaluation) : "-"});
  }
  std::string text = table_html({"epoch", "last step", "training loss", "test loss", "test accuracy",
                                 "samples per second", "evaluated in"},
                                rows, 0);
  if (left_out > 0)
    text += element("p", "soft", "the last " + std::to_string(kMost) + " of " + std::to_string(epochs.size()));
  return text;
}

}  // namespace pp::run
