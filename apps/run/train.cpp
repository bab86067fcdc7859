// pp-run [train] PLAN: the training run.
#include <array>
#include <cstdint>
#include <functional>
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
#include "apps/run/keep_going/keep_going.h"
#include "apps/run/keep_going/next_plan.h"
#include "apps/run/keep_going/rebalance.h"
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
  bool keep_going = false;
  std::optional<int> attempts;
  std::optional<Seconds> rebalance;
  std::string profile;       ///< of which the plan was made; with rebalance
  std::string launch_state;  ///< folder; empty: it was not launched to keep going
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

/// What whoever starts the training again is told of this start.
struct Told {
  std::function<void(std::int64_t)> step = [](std::int64_t) {};                ///< by the first rank
  std::function<void()> ended = [] {};                                         ///< the same
  std::function<void(const std::string&)> failed = [](const std::string&) {};  ///< by any rank: why
  std::function<void(const ToldSpeeds&)> speeds = [](const ToldSpeeds&) {};    ///< by the first rank
};

class ToldObserver final : public RunObserver {
 public:
  ToldObserver(const cli::Shell& shell, const std::string& metrics, LineFile::Begin begin, const Told& told)
      : RunObserver(shell, metrics, begin), told_(told) {}
  void start(const run::RunStart& start) override {
    steps_ = start.steps;
    RunObserver::start(start);
  }
  void speeds(std::span<const double> factors) override {
    told_.speeds({{factors.begin(), factors.end()}, steps_});
  }
  void step(const run::Progress& progress) override {
    told_.step(progress.step);
    RunObserver::step(progress);
  }

 private:
  const Told& told_;
  std::int64_t steps_ = 0;
};

/// What a training reads and writes, opened before the long work. Files belong to the first rank.
struct Files {
  Files(const TrainOptions& options, const cli::Shell& shell, const Ranks& ranks, const Told& told)
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
    observer = std::make_unique<ToldObserver>(shell, options.metrics, begin, told);
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

std::filesystem::path state_folder(const TrainOptions& options) { return options.run.checkpoint / "launch"; }

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
  if (options.rebalance && options.profile.empty())
    refuse("--rebalance plans anew with the profile that the plan was made from; give it with --profile FILE");
}

/// One process of a training that keeps going: `options` as this start takes them.
struct Start {
  TrainOptions options;
  std::vector<run::LostAttempt> lost = {};
};

/// The plan and the profile of --rebalance.
BalanceJob load_balance(const TrainOptions& options) {
  plan::Plan plan = load(options.files);
  Profile profile = cli::load(options.profile, parse_profile);
  with_context(options.profile, [&] { plan::require_whole_profile(plan, profile); });
  return {.first = std::move(plan),
          .file = options.files.plan,
          .profile = std::move(profile),
          .folder = state_folder(options),
          .within = *options.rebalance};
}

/// In a child, how it starts; nothing in the parent, when all is over.
std::optional<Start> start_child(const TrainOptions& options, const SharedProgress& progress,
                                 cli::Shell& shell) {
  check_keep_going(options);
  KeepGoing settings{.last_checkpoint = [&] { return newest_checkpoint(options.run.checkpoint); },
                     .say = cli::warn};
  if (options.attempts) settings.attempts = *options.attempts;
  std::optional<RebalancedTraining> others;
  if (options.rebalance) others.emplace(load_balance(options));
  int code = 0;
  std::optional<std::vector<run::LostAttempt>> lost =
      keep_going(settings, others ? &*others : nullptr, progress, code);
  if (!lost) {
    shell.exit_code = static_cast<cli::ExitCode>(code);
    return std::nullopt;
  }
  Start start{options, *std::move(lost)};
  if (goes_on(start.lost, !options.run.resume.empty())) start.options.run.resume = options.run.checkpoint;
  if (others) start.options.files.plan = others->file();
  return start;
}

void train_here(const Start& start, cli::Shell& shell, Ranks& ranks, const Told& told) {
  const TrainOptions& options = start.options;
  cli::catch_interrupts();
  ranks.join(10 * options.run.stall_timeout);
  try {
    Files files = ranks.reading([&] { return Files(options, shell, ranks, told); });
    run::RunReport report = run_plan(options, files, ranks);
    if (ranks.first()) told.ended();
    report.context["command"] = shell.command_line;
    report.lost_attempts = start.lost;
    if (ranks.first()) write(report, options, files, shell);
  } catch (const run::SaidElsewhere& error) {
    told.failed(error.what());
    shell.exit_code = cli::exit_code_of(error.kind());
  } catch (const std::exception& error) {
    told.failed(error.what());
    throw;
  }
}

/// One of the ranks that pp-run launch --keep-going has started.
void train_launched(const TrainOptions& options, cli::Shell& shell, Ranks& ranks) {
  const LaunchedRank launched(options.launch_state);
  const Told told{.step = [&](std::int64_t step) { launched.step(step); },
                  .ended = [&] { launched.ended(); },
                  .failed = [&](const std::string& reason) { launched.failed(reason); },
                  .speeds = [&](const ToldSpeeds& speeds) { launched.speeds(speeds); }};
  train_here({options, launched.earlier()}, shell, ranks, told);
}

void train(const TrainOptions& options, cli::Shell& shell, Ranks& ranks) {
  for (const auto& [option, given] : {std::pair{"--attempts", options.attempts.has_value()},
                                      std::pair{"--rebalance", options.rebalance.has_value()},
                                      std::pair{"--profile", !options.profile.empty()}})
    if (given && !options.keep_going)
      throw Error(ErrorKind::usage, std::string(option) + " belongs to --keep-going; add that");
  if (!options.launch_state.empty()) return train_launched(options, shell, ranks);
  if (!options.keep_going) return train_here({options}, shell, ranks, {});
  const SharedProgress progress;
  Told told{.step = [&](std::int64_t step) { progress->step = step; },
            .ended = [&] { progress->ended = true; }};
  if (const std::optional<Start> start = start_child(options, progress, shell)) {
    std::optional<LaunchedRank> launched;
    if (options.rebalance) {
      launched.emplace(state_folder(options));
      told.speeds = [&](const ToldSpeeds& speeds) { launched->speeds(speeds); };
    }
    train_here(*start, shell, ranks, told);
  }
}

}  // namespace

void add_train(const cli::Command& app, cli::Shell& shell, Ranks& ranks) {
  auto options = std::make_shared<TrainOptions>();
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
      .add_option("--save-weights", options->run.save_weights,
                  "write the trained weights as safetensors: a file; a folder (NAME/, or one that is there) or "
                  "NAME.safetensors.index.json: in shards with an index, as Hugging Face does")
      .type_name("PATH")
      .group("Results");
  cli::add_bytes(command, "--shard-size", options->run.shard_bytes, "the most that a shard of weights holds")
      .group("Results");
  command
      .add_flag("--keep-going", options->keep_going,
                "start again from the last checkpoint when the training crashes, is killed or stalls")
      .group("Checkpoints");
  command
      .add_option(
          "--attempts", options->attempts,
          "with --keep-going: give up after so many starts in a row without a new checkpoint; default: 3")
      .type_name("N")
      .check(cli::whole_number(1))
      .group("Checkpoints");
  add_rebalance(command, options->rebalance).group("Checkpoints");
  command.add_option("--profile", options->profile, "with --rebalance: the profile that the plan was made from")
      .type_name("FILE")
      .group("Checkpoints");
  command
      .add_option("--launch-state", options->launch_state,
                  "of pp-run launch --keep-going, which gives it to the ranks that it starts")
      .group("");  // not in the help
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run plan.json --data configs/data/digits --epochs 20 --lr 0.05 -o report.json --trace trace.json",
      "pp-run plan.json --data synthetic --steps 40 --checkpoint ck --every 5 --metrics m.jsonl",
      "pp-run other-plan.json --data synthetic --steps 40 --resume ck --save-weights weights.safetensors"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell, &ranks] { train(*options, shell, ranks); });
}

}  // namespace pp::run_tool
