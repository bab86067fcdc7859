#include "apps/run/infer_summary.h"

#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/run/summary.h"
#include "libprofile/core/counted.h"

namespace pp::run_tool {

namespace {

std::string amount(const run::InferReport& report) {
  if (!report.tokens) return counted(report.samples, "sample");
  return counted(*report.tokens, "token") + " for " + counted(report.samples, "sequence");
}

std::string worker_table(const run::InferReport& report) {
  cli::Table table({{"worker"}, {"stage"}, {"busy ms"}, {"idle"}, {"peak"}});
  for (const run::InferWorker& worker : report.workers) {
    table.add({std::to_string(number(worker.id)), stages_of(report.plan, worker.id),
               cli::cell(1e3 * worker.busy.count()), cli::percent(worker.idle_fraction),
               pp::to_text(worker.peak)});
  }
  return table.text();
}

/// A sequence a line, control characters escaped.
std::string text_lines(const run::InferReport& report) {
  std::string lines;
  for (std::size_t s = 0; s < report.texts.size(); ++s)
    lines += (s == 0 ? "\n" : "") + std::to_string(s) + ": " +
             cli::escaped(report.texts[s], cli::Keep::nothing) + '\n';
  return lines;
}

}  // namespace

std::string summary(const run::InferReport& report) {
  const run::Latency& latency = report.latency;
  return cli::shown(report.plan.model.name) + ", stages " + plan::stages_text(report.plan) + ", replicas " +
         plan::replicas_text(report.plan) + ": " + amount(report) + " in " + counted(report.passes, "pass") +
         " of up to " + std::to_string(report.micro_batch) + ", " + report.exit_reason + "\n" +
         cli::cell(report.per_s, 4) + (report.tokens ? " tokens/s, " : " samples/s, ") +
         pp::to_text(report.elapsed) + " in all; latency of a pass: median " + pp::to_text(latency.median) +
         ", 95 % within " + pp::to_text(latency.p95) + ", largest " + pp::to_text(latency.largest) + "\n\n" +
         worker_table(report) + '\n' + operation_table(report.op_times) + text_lines(report);
}

}  // namespace pp::run_tool
