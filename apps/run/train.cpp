// pp-run [train] PLAN: the training run.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/interrupt.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/ranks.h"
#include "apps/run/commands.h"
#include "apps/run/keep_going/child_process.h"
#include "apps/run/keep_going/keep_going.h"
#include "apps/run/keep_going/next_plan.h"
#include "apps/run/observer.h"
#include "apps/run/ranks.h"
#include "apps/run/run_options.h"
#include "apps/run/summary.h"
#include "libprofile/model/errors.h"

namespace pp::run_tool {
namespace {

struct TrainOptions : PlanAndOptions {
  std::string output;
  std::string trace;
  std::string metrics;
  RestartOptions restart;
  std::string launch_state;  ///< folder; empty: nobody keeps it going
};

constexpr auto kTrain =
    options(option<&TrainOptions::output>("-o,--output", "write the report; - for stdout",
                                          {.group = "Results", .value = "FILE"}),
            option<&TrainOptions::trace>("--trace", "write the last steps as Chrome trace JSON, for Perfetto",
                                         {.value = "FILE"}),
            option<&TrainOptions::metrics>(
                "--metrics", "a line of JSON for each step, as it is done; - for stdout", {.value = "FILE"}),
            option<&TrainOptions::launch_state>(
                "--launch-state", "of --keep-going, which gives it to what it starts", {.group = kNotInHelp}));

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

/// Tells whoever starts the training again how far it is.
class KeptObserver final : public RunObserver {
 public:
  KeptObserver(const cli::Shell& shell, const std::string& metrics, LineFile::Begin begin,
               const LaunchedRank* rank)
      : RunObserver(shell, metrics, begin), rank_(rank) {}
  void start(const run::RunStart& start) override {
    steps_ = start.steps;
    RunObserver::start(start);
  }
  void speeds(std::span<const double> factors) override {
    if (rank_) rank_->speeds({{factors.begin(), factors.end()}, steps_});
  }
  void step(const run::Progress& progress) override {
    if (rank_) rank_->step(progress.step);
    RunObserver::step(progress);
  }

 private:
  const LaunchedRank* rank_;  ///< null: nobody does
  std::int64_t steps_ = 0;
};

/// What a training reads and writes, opened before the long work. Files belong to the first rank.
struct Files {
  Files(const TrainOptions& options, const cli::Shell& shell, const Ranks& ranks, const LaunchedRank* rank)
      : plan(load(options.files)) {
    claim_other_files(options.run);
    if (!ranks.first()) {
      observer = std::make_unique<QuietObserver>();
      return;
    }
    output.emplace(options.output);
    trace.emplace(options.trace);
    const bool anew = options.run.resume.empty();
    const LineFile::Begin begin = anew ? LineFile::Begin::anew : LineFile::Begin::at_the_end;
    observer = std::make_unique<KeptObserver>(shell, options.metrics, begin, rank);
  }

  plan::Plan plan;
  std::unique_ptr<run::Observer> observer;
  std::optional<cli::Output> output, trace;
};

/// In a catch block: as an error, which names the plan where memory ran out outside of any worker.
[[noreturn]] void rethrow_of(const std::string& plan) {
  try {
    model::detail::rethrow_as_error();
  } catch (model::OutOfMemory& error) {
    if (error.contexts().empty()) error.add_context(plan);
    throw;
  }
}

run::RunReport run_plan(const TrainOptions& options, Files& files, Ranks& ranks) {
  run::RunOptions settings = options.run;
  settings.trace = !options.trace.empty();
  try {
    run::RunReport report = ranks.train(files.plan, settings, *files.observer, cli::interrupted);
    files.observer.reset();
    return report;
  } catch (...) {
    files.observer.reset();
    rethrow_of(options.files.plan);
  }
}

/// A file that cannot be written keeps no other result from being written.
void write(const run::RunReport& report, const TrainOptions& options, Files& files, cli::Shell& shell) {
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
  const std::filesystem::path& weights = options.run.save_weights;
  if (!weights.filename().empty() && weights.extension().empty() && std::filesystem::is_regular_file(weights)) {
    cli::inform(weights.string() + " is one file of safetensors; --save-weights " + weights.string() +
                "/ writes a folder as Hugging Face does");
  }
  if (report.exit_reason == "not_finite") shell.exit_code = cli::ExitCode::failed;
  if (report.exit_reason == "interrupted") shell.exit_code = cli::ExitCode::interrupted;
  if (report.exit_reason == "not_written")
    unwritten.emplace_back("not all checkpoints and weights could be written; the warnings say which and why");
  if (!unwritten.empty()) throw Error(ErrorKind::run, "the training is done, but " + unwritten.front());
}

void check_keep_going(const TrainOptions& options) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorKind::usage, "--keep-going: " + why); };
  if (options.run.checkpoint.empty())
    refuse(
        "a training goes on from checkpoints; give their folder with --checkpoint DIR, and how often with "
        "--every");
  if (options.files.plan == "-" || options.files.model == "-")
    refuse("every start reads the plan again, which standard input gives once; give files");
  if (cli::launched_with_ranks())
    refuse("is for a training in one process; of several pp-run launch --keep-going starts them again");
}

/// What starts it is this program with these words, of which the plan may change.
KeptTraining kept(const TrainOptions& options, std::vector<std::string> words) {
  check_keep_going(options);
  if (words.front() == "train") words.erase(words.begin());
  words.erase(std::ranges::find(words, options.files.plan));
  plan::Plan plan = load(options.files);
  std::optional<Profile> profile = load_profile(options.restart, plan);
  return {.options = {.program = own_path(), .plan = options.files.plan, .arguments = std::move(words)},
          .planning = {.first = {.plan = std::move(plan), .file = options.files.plan},
                       .profile = std::move(profile)},
          .checkpoint = options.run.checkpoint.string(),
          .restart = options.restart};
}

/// `rank`: null where nobody keeps the training going.
void train_once(const TrainOptions& options, cli::Shell& shell, Ranks& ranks, const LaunchedRank* rank) {
  std::vector<run::LostAttempt> lost;
  if (rank) lost = rank->earlier();
  cli::catch_interrupts();
  ranks.join(10 * options.run.stall_timeout);
  try {
    Files files = ranks.reading([&] { return Files(options, shell, ranks, rank); });
    run::RunReport report = run_plan(options, files, ranks);
    if (rank && ranks.first()) rank->ended();
    report.context["command"] = shell.command_line;
    report.lost_attempts = std::move(lost);
    if (ranks.first()) write(report, options, files, shell);
  } catch (const run::SaidElsewhere& error) {
    if (rank) rank->failed(error.what());
    shell.exit_code = cli::exit_code_of(error.kind());
  } catch (const std::exception& error) {
    if (rank) rank->failed(error.what());
    throw;
  }
}

void train(const TrainOptions& options, const std::vector<std::string>& words, cli::Shell& shell,
           Ranks& ranks) {
  check_restart(options.restart);
  std::optional<LaunchedRank> rank;
  if (!options.launch_state.empty()) rank.emplace(options.launch_state);
  if (options.restart.keep_going && !rank)
    shell.exit_code = static_cast<cli::ExitCode>(keep_going(kept(options, words)));
  else
    train_once(options, shell, ranks, rank ? &*rank : nullptr);
}

}  // namespace

void add_train(const cli::Command& app, cli::Shell& shell, Ranks& ranks, std::vector<std::string> words) {
  auto options = std::make_shared<TrainOptions>();
  const cli::Command command = app.add_subcommand("train", "train as the plan says (the default command)");
  add_run_options(command, *options);
  cli::add_options(command, kTrain, *options);
  cli::add_options(command, run::weight_output_options(), options->run);
  add_restart_options(command, options->restart,
                      "start again from the last checkpoint when the training crashes, is killed or stalls");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run plan.json --data configs/data/digits --epochs 20 --lr 0.05 -o report.json --trace trace.json",
      "pp-run plan.json --data synthetic --steps 40 --checkpoint ck --every 5 --metrics m.jsonl",
      "pp-run other-plan.json --data synthetic --steps 40 --resume ck --save-weights weights.safetensors"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback(
      [options, words = std::move(words), &shell, &ranks] { train(*options, words, shell, ranks); });
}

}  // namespace pp::run_tool
