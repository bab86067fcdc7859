// pp-run infer: the model's outputs for given inputs, by the plan's stages as a pipeline.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/interrupt.h"
#include "apps/cli/log.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/run/commands.h"
#include "apps/run/infer_summary.h"
#include "apps/run/run_options.h"
#include "libprofile/model/errors.h"
#include "librun/infer.h"

namespace pp::run_tool {
namespace {

struct Options {
  std::string plan;
  std::string report;
  run::InferOptions infer;
};

class Observer final : public run::InferObserver {
 public:
  explicit Observer(const cli::Shell& shell) : line_(shell) {}

  void progress(const run::InferProgress& progress) override {
    const double share = static_cast<double>(progress.done) / static_cast<double>(progress.all);
    line_.update("inference", share,
                 std::to_string(progress.done) + '/' + std::to_string(progress.all) + " samples, " +
                     cli::cell(progress.per_s) + " per s");
  }
  void warning(std::string_view text) override {
    line_.clear();
    cli::warn(text);
  }

 private:
  cli::ProgressLine line_;
};

run::InferReport run_inference(const plan::Plan& plan, const run::InferOptions& options,
                               const cli::Shell& shell) {
  Observer observer(shell);
  try {
    return run::infer(plan, options, observer, cli::interrupted);
  } catch (...) {
    model::detail::rethrow_as_error();
  }
}

void infer(const Options& options, cli::Shell& shell) {
  cli::catch_interrupts();
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  claim_data(options.infer);
  const std::string outputs = options.infer.outputs.string();
  cli::claim_output(outputs);
  cli::Output output(options.report);

  run::InferReport report = run_inference(plan, options.infer, shell);
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
  auto options = std::make_shared<Options>();
  run::InferOptions& infer_options = options->infer;
  const cli::Command command = app.add_subcommand("infer", "compute the model's outputs, forwards alone");
  add_execution_options(command, options->plan, infer_options, "Inference");
  command
      .add_option("--subset", infer_options.subset,
                  "of a folder: training or test; default: test where there is one")
      .type_name("NAME")
      .group("Data");
  command
      .add_option("--micro-batch-size", infer_options.micro_batch,
                  "samples that go through the stages together; default: the plan's micro-batch")
      .check(cli::whole_number(1, 1'000'000'000))
      .default_str("")
      .group("Inference");
  command
      .add_flag("--draw-weights", infer_options.draw_weights,
                "take weights from the seed, to see what the plan can do")
      .group("Inference");
  command.add_option("--seed", infer_options.seed, "of synthetic data and drawn weights")
      .check(cli::whole_number(0))
      .group("Inference");
  command
      .add_option("-o,--output", infer_options.outputs,
                  "write the outputs as safetensors, by their names, a row for each sample")
      .required()
      .type_name("FILE")
      .group("Results");
  command.add_option("--report", options->report, "write what it took as JSON; - for stdout")
      .type_name("FILE")
      .group("Results");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run infer plan.json --data inputs.safetensors --initial-weights weights.safetensors -o "
      "outputs.safetensors",
      "pp-run infer plan.json --data configs/data/digits --initial-weights ck -o outputs.safetensors",
      "pp-run infer plan.json --data synthetic --draw-weights -o outputs.safetensors --report -"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { infer(*options, shell); });
}

}  // namespace pp::run_tool
