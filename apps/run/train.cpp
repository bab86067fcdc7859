// pp-run [train] PLAN: the training run.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/interrupt.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/run/commands.h"
#include "apps/run/observer.h"
#include "apps/run/ranks.h"
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

/// Of a rank that has nothing to say.
class QuietObserver : public run::Observer {
 public:
  void step(const run::Progress& /*progress*/) override {}
  void epoch(const run::EpochReport& /*epoch*/) override {}
  void warning(std::string_view /*text*/) override {}
};

/// What a training reads and writes, opened before the long work. Files belong to the first rank.
struct Files {
  Files(const Options& options, const cli::Shell& shell, const Ranks& ranks) : plan(load(options.files)) {
    claim_other_files(options.run);
    if (!ranks.first()) {
      observer = std::make_unique<QuietObserver>();
      return;
    }
    output.emplace(options.output);
    trace.emplace(options.trace);
    const bool anew = options.run.resume.empty();
    observer = std::make_unique<RunObserver>(shell, options.metrics,
                                             anew ? LineFile::Begin::anew : LineFile::Begin::at_the_end);
  }

  plan::Plan plan;
  std::unique_ptr<run::Observer> observer;
  std::optional<cli::Output> output, trace;
};

run::RunReport run_plan(const Options& options, Files& files, Ranks& ranks) {
  run::RunOptions settings = options.run;
  settings.trace = !options.trace.empty();
  try {
    run::RunReport report = ranks.train(files.plan, settings, *files.observer, cli::interrupted);
    files.observer.reset();
    return report;
  } catch (...) {
    files.observer.reset();
    model::detail::rethrow_as_error();
  }
}

/// A file that cannot be written keeps no other result from being written.
void write(const run::RunReport& report, const Options& options, Files& files, cli::Shell& shell) {
  const Json document = run::to_json(report);
  std::vector<std::string> unwritten;
  const auto attempt = [&](cli::Output& file, const std::string& text) {
    try {
      file.write(text);
    } catch (const Error& error) {
      unwritten.emplace_back(error.what());
    }
  };
  attempt(*files.output, dump_json(document));
  attempt(*files.trace, report.trace);
  if (!files.output->is_stdout() && !files.trace->is_stdout() && options.metrics != "-") {
    std::cout << (shell.json ? dump_json_compact(document) + '\n' : summary(report));
  }
  if (report.exit_reason == "not_finite") shell.exit_code = cli::ExitCode::failed;
  if (report.exit_reason == "interrupted") shell.exit_code = cli::ExitCode::interrupted;
  if (report.exit_reason == "not_written")
    unwritten.emplace_back("not all checkpoints and weights could be written; the warnings say which and why");
  if (!unwritten.empty()) throw Error(ErrorKind::run, "the training is done, but " + unwritten.front());
}

void train(const Options& options, cli::Shell& shell, Ranks& ranks) {
  cli::catch_interrupts();
  ranks.join(10 * options.run.stall_timeout);
  try {
    Files files = ranks.reading([&] { return Files(options, shell, ranks); });
    run::RunReport report = run_plan(options, files, ranks);
    report.context["command"] = shell.command_line;
    if (ranks.first()) write(report, options, files, shell);
  } catch (const run::SaidElsewhere& error) {
    shell.exit_code = cli::exit_code_of(error.kind());
  }
}

}  // namespace

void add_train(const cli::Command& app, cli::Shell& shell, Ranks& ranks) {
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
  command
      .add_option(
          "--save-weights", options->run.save_weights,
          "write the trained weights as safetensors; a folder or NAME.safetensors.index.json: in shards "
          "with an index, as Hugging Face does")
      .type_name("PATH")
      .group("Results");
  cli::add_bytes(command, "--shard-size", options->run.shard_bytes, "the most that a shard of weights holds")
      .group("Results");
  command.add_flag("!--no-evaluate", options->run.evaluate, "leave out the evaluation after each epoch")
      .group("Results");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run plan.json --data configs/data/digits --epochs 20 --lr 0.05 -o report.json --trace trace.json",
      "pp-run plan.json --data synthetic --steps 40 --checkpoint ck --every 5 --metrics m.jsonl",
      "pp-run other-plan.json --data synthetic --steps 40 --resume ck --save-weights weights.safetensors"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell, &ranks] { train(*options, shell, ranks); });
}

}  // namespace pp::run_tool
