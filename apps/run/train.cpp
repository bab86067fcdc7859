// pp-run [train] PLAN: the training run.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/interrupt.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/run/commands.h"
#include "apps/run/observer.h"
#include "apps/run/run_options.h"
#include "apps/run/summary.h"
#include "libprofile/model/errors.h"

namespace pp::run_tool {
namespace {

struct Options : PlanAndOptions {
  std::string output;
  std::string trace;
  std::string metrics;
};

/// Weights are written by the run, data are read by it.
void claim_other_files(const run::RunOptions& options) {
  claim_data(options);
  std::error_code ignored;
  if (std::filesystem::is_regular_file(options.lr_schedule, ignored)) cli::claim_input(options.lr_schedule);
  if (!options.save_weights.empty()) cli::claim_output(options.save_weights.string());
}

void train(const Options& options, cli::Shell& shell) {
  cli::catch_interrupts();
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  claim_other_files(options.run);
  run::RunOptions settings = options.run;
  settings.trace = !options.trace.empty();
  cli::Output output(options.output);
  cli::Output trace(options.trace);

  run::RunReport report = [&] {
    const LineFile::Begin begin = settings.resume.empty() ? LineFile::Begin::anew : LineFile::Begin::at_the_end;
    RunObserver observer(shell, options.metrics, begin);
    try {
      return run::run(plan, settings, observer, cli::interrupted);
    } catch (...) {
      model::detail::rethrow_as_error();
    }
  }();
  report.context["command"] = shell.command_line;

  const Json document = run::to_json(report);
  output.write(dump_json(document));
  trace.write(report.trace);
  if (!output.is_stdout() && !trace.is_stdout() && options.metrics != "-") {
    std::cout << (shell.json ? dump_json_compact(document) + '\n' : summary(report));
  }
  if (report.exit_reason == "not_finite") shell.exit_code = cli::ExitCode::failed;
  if (report.exit_reason == "interrupted") shell.exit_code = cli::ExitCode::interrupted;
}

}  // namespace

void add_train(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command = app.add_subcommand("train", "train as the plan says (the default command)");
  add_run_options(command, *options);
  command.add_option("-o,--output", options->output, "write the report; - for stdout")
      .type_name("FILE")
      .group("Results");
  command.add_option("--trace", options->trace, "write the last steps as Chrome trace JSON, for Perfetto")
      .type_name("FILE")
      .group("Results");
  command.add_option("--metrics", options->metrics, "a line of JSON for each step, as it is done; - for stdout")
      .type_name("FILE")
      .group("Results");
  command.add_option("--save-weights", options->run.save_weights, "write the trained weights as safetensors")
      .type_name("FILE")
      .group("Results");
  command.add_flag("!--no-evaluate", options->run.evaluate, "leave out the evaluation after each epoch")
      .group("Results");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run plan.json --data configs/data/digits --epochs 20 --lr 0.05 -o report.json --trace trace.json",
      "pp-run plan.json --data synthetic --steps 40 --checkpoint ck --every 5 --metrics m.jsonl",
      "pp-run other-plan.json --data synthetic --steps 40 --resume ck --save-weights weights.safetensors"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { train(*options, shell); });
}

}  // namespace pp::run_tool
