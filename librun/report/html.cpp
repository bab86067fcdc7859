#include "librun/report/html.h"

#include <algorithm>
#include <variant>

#include "libplan/draw/op_style.h"
#include "libplan/draw/timeline_svg.h"
#include "libplan/plan_picture.h"
#include "libprofile/core/counted.h"
#include "libprofile/core/svg_writer.h"
#include "librun/report/html_curves.h"
#include "librun/report/markup.h"

namespace pp::run {
namespace {

using Row = std::vector<std::string>;

std::string section(std::string_view title, const std::string& inner) {
  return element("section", "", element("h2", "", title) + inner);
}

std::string soft(const std::string& text) { return element("p", "soft", xml_escaped(text)); }

std::string milliseconds(Seconds time) { return number_text(1e3 * time.count()); }

std::string ratio_cell(double ratio) {
  return ratio > 0 ? number_text(ratio) + ' ' + ratio_html(ratio) : std::string("-");
}

std::string tile(std::string_view name, const std::string& value, const std::string& beside) {
  return element("div", "tile",
                 element("small", "", name) + element("b", "", value) + element("small", "", beside));
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

std::string head(const RunReport& report) {
  const plan::Plan& plan = report.plan;
  const std::string line = plan.schedule.name + ", stages " + plan::stages_text(plan) + ", replicas " +
                           plan::replicas_text(plan) + ", " + counted(plan.training.mini_batch, "sample") +
                           " in " + counted(plan.training.micro_batches, "micro-batch") + ": " +
                           counted(report.steps, "step") + ", " + report.exit_reason;
  return element("h1", "", xml_escaped(plan.model.name)) + soft(line);
}

std::string tiles(const RunReport& report) {
  const plan::Prediction& promise = report.plan.predicted;
  const bool known = promise.step.count() > 0;
  std::string all =
      tile("step time", pp::to_text(report.step), predicted(known, pp::to_text(promise.step))) +
      tile("samples per second", number_text(report.samples_per_s),
           predicted(known, number_text(promise.samples_per_s))) +
      tile("bubble", share_text(report.bubble_fraction),
           predicted(known, share_text(promise.bubble_fraction))) +
      tile("highest peak of a worker", pp::to_text(highest_peak(report)),
           predicted(highest_predicted(report.plan) > Bytes(0), pp::to_text(highest_predicted(report.plan))));
  if (report.epochs.empty()) return element("div", "tiles", all);
  const EpochReport& last = report.epochs.back();
  all +=
      last.test_accuracy
          ? tile("test accuracy", share_text(*last.test_accuracy), "after " + counted(last.epoch + 1, "epoch"))
          : tile("training loss", number_text(last.train_loss), "in epoch " + std::to_string(last.epoch));
  return element("div", "tiles", all);
}

std::string plan_section(const RunReport& report, const plan::SvgOptions& names) {
  const plan::Plan& plan = report.plan;
  std::vector<Row> rows;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::Stage& stage = plan.stages[s];
    std::string workers;
    for (const WorkerId worker : stage.workers)
      workers += (workers.empty() ? "" : ", ") + std::to_string(number(worker)) + " (" +
                 names.devices[index(worker)] + ')';
    std::string again = stage.recompute.empty() ? "-" : counted(std::ssize(stage.recompute), "layer");
    rows.push_back({std::to_string(s), std::to_string(stage.layers.size()), xml_escaped(names.stage_layers[s]),
                    xml_escaped(workers), again});
  }
  return section("Plan", table_html({"stage", "layers", "from .. to", "workers", "recomputed"}, rows, 5) +
                             soft("weight policy " + std::string(name_of(plan.schedule.weight_policy)) + ", " +
                                  std::string(name_of(plan.training.dtype)) + ", plan " + report.plan_hash));
}

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

std::string timeline_section(const RunReport& report, plan::SvgOptions names) {
  const LastSteps& last = report.last_steps;
  if (last.steps == 0 || last.ops.empty()) return "";
  Drawn measured = measured_timeline(last, always_held(report));
  const bool known = report.plan.predicted.stages.size() == report.plan.stages.size();
  Drawn promised = known ? predicted_timeline(report.plan, last.steps) : Drawn{};
  names.width = 1180;
  names.length = std::max(measured.result.makespan, promised.result.makespan);
  for (Drawn* drawn : {&measured, &promised}) {  // nothing is said of what comes later
    for (plan::MemoryCurve& curve : drawn->memory) curve.push_back({drawn->result.makespan, {}});
  }
  names.full_memory = std::max(plan::highest(measured.memory), plan::highest(promised.memory));
  for (const Drawn* drawn : {&measured, &promised})
    names.names = std::max(names.names, plan::names_width(drawn->result, drawn->memory, names));
  const auto picture = [&](const Drawn& drawn, const std::string& title, Seconds step, double bubble) {
    names.title = title;
    names.subtitle = "in steady state " + pp::to_text(step) + " per step, bubble " + share_text(bubble) +
                     " (1 - busy / (workers x step))";
    return element("div", "timeline", plan::timeline_svg(drawn.result, drawn.memory, names));
  };
  const std::string which = last.steps == 1 ? "step " + std::to_string(last.first_step)
                                            : "steps " + std::to_string(last.first_step) + " to " +
                                                  std::to_string(last.first_step + last.steps - 1);
  std::string text;
  if (known)
    text += picture(promised, "predicted", report.plan.predicted.step, report.plan.predicted.bubble_fraction);
  text += picture(measured, "measured, " + which, report.step, report.bubble_fraction);
  return section("Timeline and memory", element("div", "scroll", text));
}

std::string operations_section(const RunReport& report) {
  std::vector<Row> rows;
  for (const OpTime& row : report.op_times) {
    const bool known = row.predicted.count() > 0;
    const bool tied = row.kind == plan::OpKind::tied_all_reduce;
    rows.push_back({tied ? "-" : std::to_string(number(row.stage)), std::string(plan::style_of(row.kind).name),
                    std::to_string(row.count), known ? milliseconds(row.predicted) : "-",
                    milliseconds(row.median), known ? ratio_cell(row.median / row.predicted) : "-"});
  }
  return section(
      "Operations",
      table_html({"stage", "operation", "count", "predicted ms", "measured ms", "measured / predicted"}, rows,
                 2) +
          soft("times of one operation, measured: the median; bars are full at half and "
               "at double"));
}

std::string workers_section(const RunReport& report, const plan::SvgOptions& names) {
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
  return section("Workers",
                 table_html({"worker", "device", "busy ms, predicted", "measured", "bubble", "peak, predicted",
                             "measured", "limit", "in flight", "versions", "sent per step"},
                            rows, 2) +
                     slow);
}

/// Of --keep-going, the last one at the end.
std::string starts_section(const RunReport& report) {
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
  return section("Starts", table_html({"start", "ended by", "from step", "to step", "time", "to the next",
                                       "plan", "hosts"},
                                      rows, 8));
}

std::string text_of(const Setting& setting) {
  if (const bool* truth = std::get_if<bool>(&setting)) return *truth ? "yes" : "no";
  if (const auto* whole = std::get_if<std::int64_t>(&setting)) return std::to_string(*whole);
  if (const double* value = std::get_if<double>(&setting)) return number_text(*value);
  return std::get<std::string>(setting);
}

std::string facts_section(const RunReport& report) {
  std::vector<Row> settings{{"seed", std::to_string(report.seed)}}, machine;
  for (const auto& [name, value] : report.settings)
    settings.push_back({xml_escaped(name), xml_escaped(text_of(value))});
  for (const auto& [name, value] : report.context) machine.push_back({xml_escaped(name), xml_escaped(value)});
  const auto facts = [](std::string_view title, const std::vector<Row>& rows) {
    return element("div", "facts", element("h2", "", title) + table_html({}, rows, 2));
  };
  return element("section", "columns", facts("Settings", settings) + facts("Machine", machine));
}

}  // namespace

std::string report_html(const RunReport& report) {
  const plan::SvgOptions names = plan::picture_names(report.plan);
  std::string body = head(report) + tiles(report) + plan_section(report, names) +
                     timeline_section(report, names) + operations_section(report) +
                     workers_section(report, names) + starts_section(report);
  if (const std::string curves = curves_html(report, names.limits); !curves.empty())
    body += section("Over the run", element("div", "charts", curves));
  if (const std::string epochs = epochs_html(report.epochs); !epochs.empty()) body += section("Epochs", epochs);
  return page_html(report.plan.model.name + " - pp-run", body + facts_section(report));
}

}  // namespace pp::run
