#include "librun/report/html.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <variant>

#include "libplan/explorer/explorer.h"
#include "libplan/plan/programs.h"
#include "libprofile/core/text.h"

namespace pp::run {

namespace {

std::string share_text(double share) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
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

constexpr std::size_t kMostPoints = 480;

/// How many neighbours stand for one point of a curve.
std::size_t joined(std::size_t count) {
  return std::max<std::size_t>(1, (count + kMostPoints - 1) / kMostPoints);
}

/// Losses as [step, loss], means of neighbours where there are many.
Json loss_points(const RunReport& report) {
  const std::vector<double>& losses = report.step_losses;  // the last ones
  const std::int64_t before = (report.resumed ? report.resumed->step : 0) +
                              std::max<std::int64_t>(report.steps - std::ssize(losses), 0);
  const std::size_t stride = joined(losses.size());
  Json points = Json::array();
  for (std::size_t first = 0; first < losses.size(); first += stride) {
    const std::size_t end = std::min(first + stride, losses.size());
    double sum = 0, count = 0;
    for (std::size_t i = first; i < end; ++i)
      if (std::isfinite(losses[i])) sum += losses[i], ++count;
    if (count > 0) points.push_back({before + static_cast<std::int64_t>(end), loss_json(sum / count)});
  }
  return points;
}

/// Every so many, the last one always.
Json thinned(const Json& list) {
  const std::size_t stride = joined(list.size());
  Json some = Json::array();
  for (std::size_t i = (list.size() + stride - 1) % stride; i < list.size(); i += stride)
    some.push_back(list[i]);
  return some;
}

/// What the page's script reads: the document without plan and last steps, which are drawn elsewhere.
Json page_data(const NamedReport& named) {
  const RunReport& report = *named.report;
  const plan::Plan& plan = report.plan;
  Json data = to_json(report);
  data.erase("plan");
  data.erase("last_steps");
  data["name"] = named.name;
  data["step_losses"] = loss_points(report);
  data["epoch_count"] = report.epochs.size();
  for (const char* list : {"epochs", "evaluations"})
    if (data.contains(list)) data[list] = thinned(data[list]);
  data["promised"] = Json::array();
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    const bool known = w < plan.predicted.workers.size();
    const plan::WorkerPrediction worker = known ? plan.predicted.workers[w] : plan::WorkerPrediction{};
    data["promised"].push_back({{"busy_s", worker.busy.count()}, {"peak_bytes", worker.memory.peak.value}});
  }
  data["why"] = deviation_lines(report);
  data["slow"] = Json::array();
  for (const SlowDevice& one : report.slow_devices) data["slow"].push_back(slow_device_line(one, plan));
  data["about"] = "weight policy " + std::string(name_of(plan.schedule.weight_policy)) + ", " +
                  std::string(name_of(plan.training.dtype)) + ", plan " + report.plan_hash;
  return data;
}

/// Empty places, which the script in the last one fills.
std::vector<plan::ExplorerSection> sections(std::span<const NamedReport> reports) {
  const auto some = [&](auto&& has) {
    return std::ranges::any_of(reports, [&](const NamedReport& one) { return has(*one.report); });
  };
  std::vector<plan::ExplorerSection> all;
  const auto add = [&](const char* title, const std::string& name, const char* css = "") {
    all.push_back({title, "<div class=\"" + std::string(css) + "\" data-report=\"" + name + "\"></div>"});
  };
  const auto ran = [](const RunReport& one) {
    return !one.step_losses.empty() || !one.history.time.empty() || !one.epochs.empty();
  };
  if (some(ran)) add("Over the run", "curves", "charts");
  add("Operations", "operations");
  add("Workers", "workers");
  if (some([](const RunReport& one) { return !one.lost_attempts.empty(); })) add("Starts", "starts");
  if (some([](const RunReport& one) { return !one.epochs.empty(); })) add("Epochs", "epochs");
  add("Settings", "settings");
  all.back().markup += "<script>\n" + std::string(kReportScript) + "</script>";
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
  Json data = plan::explorer_data(plans, timelines);
  for (const NamedReport& report : reports) data["reports"].push_back(page_data(report));
  return plan::explorer_page(reports.front().report->plan.model.name + " - pp-run", data, sections(reports),
                             kReportStyle);
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

}  // namespace pp::run
