// pp-run infer: the model's outputs for given inputs, by the plan's stages as a pipeline, and the report of
// it as text.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/cli/interrupt.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/ranks.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/run/commands.h"
#include "apps/run/run_options.h"
#include "apps/run/summary.h"
#include "libprofile/core/text.h"
#include "libprofile/model/errors.h"
#include "librun/infer.h"

namespace pp::run_tool {

namespace {

struct InferOptions {
  PlanFiles files;
  std::string report;
  run::InferOptions infer;
  run::GenerationOptions generation;
};

constexpr auto kInferReport = options(option<&InferOptions::report>(
    "--report", "write what it took as JSON; - for stdout", {.group = "Results", .value = "FILE"}));

class Observer final : public run::InferObserver {
 public:
  Observer(const cli::Shell& shell, std::string unit) : line_(shell), unit_(std::move(unit)) {}

  void progress(const run::InferProgress& progress) override {
    const double share = static_cast<double>(progress.done) / static_cast<double>(progress.all);
    line_.update("inference", share,
                 std::to_string(progress.done) + '/' + std::to_string(progress.all) + ' ' + unit_ + ", " +
                     cli::cell(progress.per_s) + " per s");
  }
  void warning(std::string_view text) override {
    line_.clear();
    cli::warn(text);
  }

 private:
  cli::ProgressLine line_;
  std::string unit_;
};

run::InferReport run_inference(const plan::Plan& plan, const run::InferOptions& options,
                               const cli::Shell& shell) {
  Observer observer(shell, options.generation ? "tokens" : "samples");
  try {
    return run::infer(plan, options, observer, cli::interrupted);
  } catch (...) {
    try {
      model::detail::rethrow_as_error();
    } catch (model::OutOfMemory& error) {  // outside of any worker
      if (error.contexts().empty()) error.add_context(plan.model.name);
      throw;
    }
  }
}

/// Options of a generation without one are mistakes.
void set_generation(run::InferOptions& settings, const InferOptions& options) {
  if (options.generation.new_tokens > 0)
    settings.generation = options.generation;
  else if (first_given(run::generation_options(), options.generation))
    throw Error(ErrorKind::usage, "how tokens are made is said without how many: give --max-new-tokens");
}

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

void infer(const InferOptions& options, cli::Shell& shell) {
  if (cli::launched_with_ranks())
    throw Error(ErrorKind::usage, "pp-run infer is one process; start it without mpirun");
  cli::catch_interrupts();
  const plan::Plan plan = load(options.files);
  claim_data(options.infer);
  const std::string outputs = options.infer.outputs.string();
  cli::claim_output(outputs);
  cli::Output output(options.report);

  run::InferOptions settings = options.infer;
  set_generation(settings, options);
  run::InferReport report = run_inference(plan, settings, shell);
  report.context["command"] = shell.command_line;
  const Json document = run::to_json(report);
  output.write(dump_json(document));
  if (!output.is_stdout()) std::cout << (shell.json ? dump_json_compact(document) + '\n' : summary(report));
  if (report.exit_reason != "interrupted") return;
  cli::warn("interrupted: " + outputs + " is not written");
  shell.exit_code = cli::ExitCode::interrupted;
}

}  // namespace

void add_infer(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<InferOptions>();
  const cli::Command command = app.add_subcommand("infer", "compute the model's outputs, forwards alone");
  add_plan_options(command, options->files);
  cli::add_options(command, run::execution_options(), options->infer);
  cli::add_options(command, run::infer_options(), options->infer);
  cli::add_options(command, run::generation_options(), options->generation);
  cli::add_options(command, kInferReport, *options);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run infer plan.json --data inputs.safetensors --initial-weights weights.safetensors -o "
      "outputs.safetensors",
      "pp-run infer plan.json --data configs/data/digits --initial-weights ck -o outputs.safetensors",
      "pp-run infer plan.json --data prompts.txt --token-type uint8 --prompt-length 16 --max-new-tokens 48 "
      "--initial-weights weights.safetensors -o text.safetensors"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { infer(*options, shell); });
}

}  // namespace pp::run_tool
