#include "apps/run/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "libplan/draw/svg_labels.h"
#include "libprofile/core/text.h"

namespace pp::run_tool {
namespace {

/// A comparison in the unit that its name ends in: seconds as ms, bytes as MiB, shares as they are.
std::vector<std::string> comparison_cells(const run::Comparison& comparison) {
  double scale = 1;
  std::string name = comparison.name;
  const auto unit = [&](std::string_view suffix, double factor, std::string_view shown) {
    if (!name.ends_with(suffix)) return;
    name.replace(name.size() - suffix.size(), suffix.size(), shown);
    scale = factor;
  };
  unit("_bytes", 1.0 / (1 << 20), ", MiB");
  unit("_per_s", 1, " per s");
  unit("_s", 1e3, ", ms");
  for (char& c : name) c = c == '_' ? ' ' : c;
  return {name, cli::cell(scale * comparison.predicted), cli::cell(scale * comparison.measured),
          comparison.ratio > 0 ? cli::cell(comparison.ratio, 3) : "-"};
}

std::string worker_table(const run::RunReport& report) {
  const plan::Plan& plan = report.plan;
  cli::Table table({{"worker"},
                    {"stage"},
                    {"busy ms"},
                    {"bubble"},
                    {"peak"},
                    {"in flight"},
                    {"versions"},
                    {"sent per step"}});
  for (const run::WorkerReport& worker : report.workers) {
    table.add({std::to_string(number(worker.id)), stages_of(plan, worker.id),
               cli::cell(1e3 * worker.busy.count()), cli::percent(worker.bubble_fraction),
               pp::to_text(worker.peak), std::to_string(worker.peak_in_flight),
               std::to_string(worker.peak_versions), pp::to_text(worker.sent_per_step)});
  }
  return table.text();
}

/// What was copied between host and devices, and how fast: what --swap-bandwidth of pp-plan wants to know.
std::string swaps_line(const run::RunReport& report) {
  run::SwapsReport in, out;
  const auto add = [](run::SwapsReport& sum, const std::optional<run::SwapsReport>& one) {
    if (one) sum = {sum.count + one->count, sum.bytes + one->bytes, sum.time + one->time};
  };
  for (const run::WorkerReport& worker : report.workers) add(in, worker.swaps_in), add(out, worker.swaps_out);
  if (!in.bandwidth()) return {};
  std::string text = "\nstages from the host: " + pp::to_text(in.bytes) + " at " + pp::to_text(*in.bandwidth());
  if (out.bandwidth()) text += ", back: " + pp::to_text(out.bytes) + " at " + pp::to_text(*out.bandwidth());
  return text + '\n';
}

std::string graphs_line(const run::RunReport& report) {
  run::GraphCount all;
  for (const run::WorkerReport& worker : report.workers) all += worker.graphs.value_or(run::GraphCount{});
  if (all.recorded == 0) return "";
  return "\nCUDA graphs: " + counted(all.replayed, "micro-batch") + " on " +
         counted(all.recorded, "recorded pass") + " of " + pp::to_text(all.bytes) + '\n';
}

// Around a server; those that wait for each other are not stale.
std::string replicas_line(const run::RunReport& report) {
  if (!report.replicas) return "";
  const run::ReplicasReport& replicas = *report.replicas;
  std::string text = "\nreplicas: ";
  if (report.plan.schedule.weight_policy != plan::WeightPolicy::server)
    text += "an update missed " + cli::cell(replicas.mean_staleness) + " of the others' on average, " +
            std::to_string(replicas.largest_staleness) + " at most; nobody began more than " +
            counted(replicas.largest_lead, "mini-batch") + " ahead; ";
  return text + "a step pushed " + pp::to_text(replicas.pushed_per_step) + " and fetched " +
         pp::to_text(replicas.fetched_per_step) + "\n";
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "\n" : "") + line + '\n';
  return text;
}

std::string slow_lines(const run::RunReport& report) {
  std::vector<std::string> lines;
  for (const run::SlowDevice& slow : report.slow_devices)
    lines.push_back(run::slow_device_line(slow, report.plan));
  return lines_of(lines);
}

// Of --keep-going: `2 starts were lost (signal 9 (Killed), exit code 1): 14 steps done again, 8.2 s`.
std::string lost_line(const run::RunReport& report) {
  if (report.lost_attempts.empty()) return "";
  std::string how;
  std::int64_t again = 0;
  Seconds time{};
  for (const run::LostAttempt& lost : report.lost_attempts) {
    how += (how.empty() ? "" : ", ") + lost.how;
    again += lost.steps_done - lost.checkpoint.value_or(0);
    time += lost.time;
  }
  return "\n" + counted(std::ssize(report.lost_attempts), "start") + " lost (" + how +
         "): " + counted(again, "step") + " done again; they took " + pp::to_text(time) + "\n";
}

// `best test loss 0.0842, at step 644, kept as ck/step-644; 3 evaluations since found no lesser one, which
// ended the training`
std::string best_line(const run::RunReport& report) {
  if (!report.best) return "";
  const run::BestReport& best = *report.best;
  std::string text = "\nbest test loss " + cli::cell(best.test_loss) + ", at step " + std::to_string(best.step);
  if (!best.checkpoint.empty()) text += ", kept as " + best.checkpoint;
  if (report.exit_reason == "stopped_early")
    text +=
        "; the training ended after " + counted(best.evaluations_since, "evaluation") + " without a lesser one";
  return text + '\n';
}

}  // namespace

std::string stages_of(const plan::Plan& plan, WorkerId worker) {
  std::string stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const WorkerId holder : plan.stages[s].workers)
      if (holder == worker) stages.append(stages.empty() ? "" : ",").append(std::to_string(s));
  }
  return stages;
}

std::string operation_table(std::vector<run::OpTime> rows) {
  constexpr std::size_t kMost = 12;
  const auto difference = [](const run::OpTime& row) {
    return static_cast<double>(row.count) * std::abs((row.median - row.predicted).count());
  };
  const std::size_t left_out = rows.size() - std::min(rows.size(), kMost);
  if (left_out > 0) {
    std::ranges::stable_sort(rows, std::greater{}, difference);
    rows.resize(kMost);
  }
  cli::Table table({{"stage"},
                    {"operation", cli::Align::left},
                    {"count"},
                    {"predicted ms"},
                    {"measured ms"},
                    {"measured/predicted"}});
  for (const run::OpTime& row : rows) {
    const bool known = row.predicted.count() > 0;
    const bool tied = row.kind == plan::OpKind::tied_all_reduce;
    table.add({tied ? "-" : std::to_string(number(row.stage)), std::string(plan::style_of(row.kind).name),
               std::to_string(row.count), known ? cli::cell(1e3 * row.predicted.count()) : "-",
               cli::cell(1e3 * row.median.count()), known ? cli::cell(row.median / row.predicted, 3) : "-"});
  }
  if (left_out == 0) return table.text();
  return table.text() + "and " + counted(static_cast<std::int64_t>(left_out), "row") +
         " that are off by less; the report has all\n";
}

std::string epoch_line(const run::EpochReport& epoch) {
  std::string text = "epoch " + std::to_string(epoch.epoch) + ": train loss " + cli::cell(epoch.train_loss);
  if (epoch.test_loss) text += ", test loss " + cli::cell(*epoch.test_loss);
  if (epoch.test_accuracy) text += ", test accuracy " + cli::percent(*epoch.test_accuracy);
  text += ", " + cli::cell(epoch.samples_per_s, 4) + " samples/s";
  if (epoch.evaluation.count() > 0) text += ", evaluated in " + pp::to_text(epoch.evaluation);
  return text;
}

std::string evaluation_line(const run::EvaluationReport& evaluation) {
  std::string text = "step " + std::to_string(evaluation.step) + ": test loss " +
                     (evaluation.test_loss ? cli::cell(*evaluation.test_loss) : "-");
  if (evaluation.test_accuracy) text += ", test accuracy " + cli::percent(*evaluation.test_accuracy);
  return text + ", evaluated in " + pp::to_text(evaluation.time);
}

std::string summary(const run::RunReport& report) {
  const plan::Plan& plan = report.plan;
  const std::string skipped =
      report.skipped_steps > 0 ? " (" + std::to_string(report.skipped_steps) + " skipped)" : "";
  std::string text = cli::shown(plan.model.name) + ", " + plan.schedule.name + ", stages " +
                     plan::stages_text(plan) + ", replicas " + plan::replicas_text(plan) + ": " +
                     counted(report.steps, "step") + skipped +
                     (report.resumed ? " after " + std::to_string(report.resumed->step) : "") + ", " +
                     report.exit_reason + "\n\n";
  if (report.steps == 0 && report.resumed && report.exit_reason == "stopped_early")
    return text + report.resumed->checkpoint + " is where --early-stop ended this training\n" +
           best_line(report);
  if (report.steps == 0 && report.resumed)
    return text + report.resumed->checkpoint +
           " has all steps of this training already; ask for more (--epochs, --steps) to go on from it\n";
  cli::Table table({{"quantity", cli::Align::left}, {"predicted"}, {"measured"}, {"measured/predicted"}});
  for (const run::Comparison& comparison : report.comparisons) table.add(comparison_cells(comparison));
  text += table.text() + '\n' + worker_table(report) + '\n' + operation_table(report.op_times);
  text += lines_of(run::deviation_lines(report)) + swaps_line(report) + graphs_line(report);
  if (report.frames) {
    text += "\na frame every " + pp::to_text(report.frames->period) + ", its output " +
            pp::to_text(report.frames->latency) + " and at most " + counted(report.frames->delay, "frame") +
            " later\n";
  }
  text += replicas_line(report) + slow_lines(report);
  text += lost_line(report);
  if (report.checkpoints && report.checkpoints->written > 0) {
    const run::CheckpointsReport& checkpoints = *report.checkpoints;
    text += '\n' + counted(checkpoints.written, "checkpoint") + " of " + pp::to_text(checkpoints.size) +
            ": training stood still for " + pp::to_text(checkpoints.pause) + ", written in " +
            pp::to_text(checkpoints.write) + " each\n";
    if (checkpoints.choice)
      text += "each took " + pp::to_text(checkpoints.choice->cost) + " from the training; " +
              pp::to_text(checkpoints.choice->interval) + " from one to the next lose the least time\n";
  }
  if (!report.epochs.empty()) text += '\n' + epoch_line(report.epochs.back()) + '\n';
  if (!report.evaluations.empty()) text += evaluation_line(report.evaluations.back()) + '\n';
  return text + best_line(report);
}

}  // namespace pp::run_tool
