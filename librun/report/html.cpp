#include "librun/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <nlohmann/json.hpp>
#include <variant>

#include "libplan/draw/svg_labels.h"
#include "libplan/explorer/explorer.h"
#include "libplan/explorer/plan_data.h"
#include "libplan/plan/programs.h"
#include "libprofile/core/svg_writer.h"
#include "libprofile/core/text.h"
#include "librun/report/html_curves.h"

namespace pp::run {

namespace {

using Row = std::vector<std::string>;

std::string soft(const std::string& text) { return element("p", "soft", xml_escaped(text)); }

std::string milliseconds(Seconds time) { return number_text(1e3 * time.count()); }

std::string ratio_cell(double ratio) {
  return ratio > 0 ? number_text(ratio) + ' ' + ratio_html(ratio) : std::string("-");
}

Bytes highest_peak(const RunReport& report) {
  Bytes peak;
  for (const WorkerReport& worker : report.workers) peak = std::max(peak, worker.peak);
  return peak;
}

Bytes highest_predicted(const plan::Plan& plan) {
  Bytes peak;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  return peak;
}

std::string predicted(bool known, const std::string& text) {
  return known ? "predicted " + text : "not predicted";
}

std::string title_of(const RunReport& report) {
  const plan::Plan& plan = report.plan;
  return plan.model.name + ": " + plan.schedule.name + ", stages " + plan::stages_text(plan) + ", replicas " +
         plan::replicas_text(plan) + ", " + counted(plan.training.mini_batch, "sample") + " in " +
         counted(plan.training.micro_batches, "micro-batch") + ", " + counted(report.steps, "step") + ", " +
         report.exit_reason;
}

std::vector<plan::ExplorerTile> tiles_of(const RunReport& report) {
  const plan::Prediction& promise = report.plan.predicted;
  const bool known = promise.step.count() > 0;
  const Bytes promised_peak = highest_predicted(report.plan);
  std::vector<plan::ExplorerTile> tiles{
      {"step time", pp::to_text(report.step), predicted(known, pp::to_text(promise.step))},
      {"samples per second", number_text(report.samples_per_s),
       predicted(known, number_text(promise.samples_per_s))},
      {"bubble", share_text(report.bubble_fraction), predicted(known, share_text(promise.bubble_fraction))},
      {"highest peak of a worker", pp::to_text(highest_peak(report)),
       predicted(promised_peak > Bytes(0), pp::to_text(promised_peak))}};
  if (report.epochs.empty()) return tiles;
  const EpochReport& last = report.epochs.back();
  if (last.test_accuracy) {
    tiles.push_back(
        {"test accuracy", share_text(*last.test_accuracy), "after " + counted(last.epoch + 1, "epoch")});
  } else {
    tiles.push_back({"training loss", number_text(last.train_loss), "in epoch " + std::to_string(last.epoch)});
  }
  return tiles;
}

std::string operations(const RunReport& report) {
  std::vector<Row> rows;
  for (const OpTime& row : report.op_times) {
    const bool known = row.predicted.count() > 0;
    const bool tied = row.kind == plan::OpKind::tied_all_reduce;
    rows.push_back({tied ? "-" : std::to_string(number(row.stage)), std::string(plan::style_of(row.kind).name),
                    std::to_string(row.count), known ? milliseconds(row.predicted) : "-",
                    milliseconds(row.median), known ? ratio_cell(row.median / row.predicted) : "-"});
  }
  std::string why;
  for (const std::string& line : deviation_lines(report)) why += soft(xml_escaped(line));
  return table_html({"stage", "operation", "count", "predicted ms", "measured ms", "measured / predicted"},
                    rows, 2) +
         why + soft("times of one operation, measured: the median; bars are full at half and at double");
}

std::string workers(const RunReport& report) {
  const plan::SvgOptions names = plan::picture_names(report.plan);
  std::vector<Row> rows;
  for (const WorkerReport& worker : report.workers) {
    const std::size_t w = index(worker.id);
    const plan::WorkerPrediction promise =
        w < report.plan.predicted.workers.size() ? report.plan.predicted.workers[w] : plan::WorkerPrediction{};
    const bool known = promise.busy.count() > 0;
    rows.push_back(
        {std::to_string(w), xml_escaped(names.devices[w]), known ? milliseconds(promise.busy) : "-",
         milliseconds(worker.busy), bar_html(worker.bubble_fraction) + ' ' + share_text(worker.bubble_fraction),
         promise.memory.peak > Bytes(0) ? pp::to_text(promise.memory.peak) : "-", pp::to_text(worker.peak),
         names.limits[w] > Bytes(0) ? pp::to_text(names.limits[w]) : "-", std::to_string(worker.peak_in_flight),
         std::to_string(worker.peak_versions), pp::to_text(worker.sent_per_step)});
  }
  std::string slow;
  for (const SlowDevice& one : report.slow_devices) slow += soft(slow_device_line(one, report.plan));
  return table_html({"worker", "device", "busy ms, predicted", "measured", "bubble", "peak, predicted",
                     "measured", "limit", "in flight", "versions", "sent per step"},
                    rows, 2) +
         slow;
}

/// Of --keep-going, the last one at the end.
std::string starts(const RunReport& report) {
  if (report.lost_attempts.empty()) return "";
  std::vector<Row> rows;
  const auto add = [&](const std::string& how, std::int64_t first, std::int64_t done, const std::string& time,
                       const std::string& to_next, const std::string& plan, const std::string& hosts) {
    rows.push_back({std::to_string(rows.size() + 1), xml_escaped(how), std::to_string(first),
                    std::to_string(done), time, to_next, xml_escaped(plan), xml_escaped(hosts)});
  };
  for (const LostAttempt& lost : report.lost_attempts)
    add(lost.how, lost.first_step, lost.steps_done, pp::to_text(lost.time),
        lost.to_next ? pp::to_text(*lost.to_next) : "-", lost.plan, lost.hosts);
  const std::int64_t first = report.resumed ? report.resumed->step : 0;
  add(report.exit_reason, first, first + report.steps, "-", "-", "as above", "");
  return table_html({"start", "ended by", "from step", "to step", "time", "to the next", "plan", "hosts"}, rows,
                    8);
}

std::string text_of(const Setting& setting) {
  if (const bool* truth = std::get_if<bool>(&setting)) return *truth ? "yes" : "no";
  if (const auto* whole = std::get_if<std::int64_t>(&setting)) return std::to_string(*whole);
  if (const double* value = std::get_if<double>(&setting)) return number_text(*value);
  return std::get<std::string>(setting);
}

std::string settings(const RunReport& report) {
  const plan::Plan& plan = report.plan;
  std::vector<Row> settings{{"seed", std::to_string(report.seed)}}, machine;
  for (const auto& [name, value] : report.settings)
    settings.push_back({xml_escaped(name), xml_escaped(text_of(value))});
  for (const auto& [name, value] : report.context) machine.push_back({xml_escaped(name), xml_escaped(value)});
  const auto facts = [](std::string_view title, const std::vector<Row>& rows) {
    return element("div", "facts", element("h3", "", title) + table_html({}, rows, 2));
  };
  return element("div", "columns", facts("Settings", settings) + facts("Machine", machine)) +
         soft("weight policy " + std::string(name_of(plan.schedule.weight_policy)) + ", " +
              std::string(name_of(plan.training.dtype)) + ", plan " + report.plan_hash);
}

/// Of each report what `markup` says, under its name where there are several; empty ones are left out.
std::string of_each(std::span<const NamedReport> reports,
                    const std::function<std::string(const RunReport&)>& markup) {
  std::string all;
  for (const NamedReport& report : reports) {
    const std::string one = markup(*report.report);
    if (one.empty()) continue;
    if (reports.size() > 1) all += element("h2", "", xml_escaped(report.name));
    all += one;
  }
  return all;
}

std::vector<plan::ExplorerSection> sections(std::span<const NamedReport> reports) {
  std::vector<plan::ExplorerSection> all;
  const auto add = [&](const char* title, std::string markup) {
    if (!markup.empty()) all.push_back({title, std::move(markup)});
  };
  const std::string curves = curves_html(reports);
  if (!curves.empty()) add("Over the run", element("div", "charts", curves));
  add("Operations", of_each(reports, operations));
  add("Workers", of_each(reports, workers));
  add("Starts", of_each(reports, starts));
  add("Epochs", of_each(reports, [](const RunReport& report) { return epochs_html(report.epochs); }));
  add("Settings", of_each(reports, settings));
  return all;
}

/// What a worker holds all the time.
std::vector<plan::MemoryParts> always_held(const RunReport& report) {
  std::vector<plan::MemoryParts> parts(report.workers.size());
  for (const WorkerReport& worker : report.workers) {
    plan::MemoryParts& held = parts[index(worker.id)];
    held.weights = worker.weights;
    held.gradients = worker.gradients;
    held.optimizer = worker.optimizer;
    held.versions = worker.versions;
  }
  return parts;
}

std::string steps_text(const LastSteps& last) {
  if (last.steps == 1) return "step " + std::to_string(last.first_step);
  return "steps " + std::to_string(last.first_step) + " to " + std::to_string(last.first_step + last.steps - 1);
}

/// Samples of a step that is not cut short.
std::int64_t whole_step(const RunReport& report) {
  const auto accumulate = report.settings.find("accumulate");
  const bool several =
      accumulate != report.settings.end() && std::holds_alternative<std::int64_t>(accumulate->second);
  return report.plan.training.mini_batch * (several ? std::get<std::int64_t>(accumulate->second) : 1);
}

/// ` (step 58: 5 of 64 samples)`
std::string partial_text(const RunReport& report) {
  const LastSteps& last = report.last_steps;
  const std::int64_t whole = whole_step(report);
  std::string text;
  for (std::size_t i = 0; i < last.samples.size(); ++i) {
    if (last.samples[i] >= whole) continue;
    text += (text.empty() ? " (step " : ", step ") +
            std::to_string(last.first_step + static_cast<std::int64_t>(i)) + ": " +
            std::to_string(last.samples[i]) + " of " + std::to_string(whole) + " samples";
  }
  return text.empty() ? text : text + ")";
}

std::string filled(double from, double to) {
  return "<i style=\"left:" + svg_number(100 * from) + "%;width:" + svg_number(100 * (to - from)) + "%\"></i>";
}

}  // namespace

std::string report_html(std::span<const NamedReport> reports) {
  std::vector<plan::ExplorerPlan> plans;
  std::deque<PageTimeline> drawn;  // whose members are referred to
  std::vector<plan::ExplorerTimeline> timelines;
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const RunReport& report = *reports[r].report;
    plans.push_back({reports[r].name, title_of(report), &report.plan, tiles_of(report)});
    for (PageTimeline& timeline : page_timelines(report)) {
      const PageTimeline& kept = drawn.emplace_back(std::move(timeline));
      const std::string name = (reports.size() > 1 ? reports[r].name + ", " : "") + kept.name;
      timelines.push_back({name, r, &kept.drawn.result, kept.drawn.memory, kept.step, kept.bubble});
    }
  }
  return plan::explorer_page(reports.front().report->plan.model.name + " - pp-run",
                             plan::explorer_data(plans, timelines), sections(reports), kPageStyle);
}

std::vector<PageTimeline> page_timelines(const RunReport& report) {
  const LastSteps& last = report.last_steps;
  if (last.steps == 0 || last.ops.empty()) return {};
  std::vector<PageTimeline> timelines;
  if (report.plan.predicted.stages.size() == report.plan.stages.size()) {
    timelines.push_back({"predicted", predicted_timeline(report.plan, last.steps), report.plan.predicted.step,
                         report.plan.predicted.bubble_fraction});
  }
  timelines.push_back({"measured, " + steps_text(last) + partial_text(report),
                       measured_timeline(last, always_held(report)), report.step, report.bubble_fraction});
  for (PageTimeline& timeline : timelines) {  // nothing is said of what comes later
    for (plan::MemoryCurve& curve : timeline.drawn.memory)
      curve.push_back({timeline.drawn.result.makespan, {}});
  }
  return timelines;
}

std::string element(std::string_view tag, std::string_view css, std::string_view inner) {
  std::string text = "<" + std::string(tag);
  if (!css.empty()) text.append(" class=\"").append(css).append("\"");
  return text.append(">").append(inner).append("</").append(tag).append(">\n");
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  char text[40];
  if (size >= 1e4 && size < 1e10) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

std::string share_text(double share) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string table_html(const std::vector<std::string>& titles,
                       const std::vector<std::vector<std::string>>& rows, std::size_t texts) {
  const auto cells = [&](const char* tag, const std::vector<std::string>& values) {
    std::string line;
    for (std::size_t c = 0; c < values.size(); ++c) line += element(tag, c < texts ? "l" : "", values[c]);
    return element("tr", "", line);
  };
  std::string body;
  for (const auto& row : rows) body += cells("td", row);
  return element("div", "scroll",
                 element("table", "", element("thead", "", cells("th", titles)) + element("tbody", "", body)));
}

std::string bar_html(double share) { return element("span", "bar", filled(0, std::clamp(share, 0.0, 1.0))); }

std::string ratio_html(double ratio) {
  if (!(ratio > 0) || !std::isfinite(ratio)) return "";
  const double end = 0.5 + std::clamp(std::log2(ratio), -1.0, 1.0) / 2;
  return element("span", ratio > 1 ? "bar two over" : "bar two",
                 filled(std::min(end, 0.5), std::max(end, 0.5)));
}

}  // namespace pp::run
