#include "apps/run/run_options.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "apps/cli/options.h"
#include "apps/cli/output.h"

namespace pp::run_tool {

namespace {

std::optional<std::int64_t> steps_in(const std::string& text) {
  std::int64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error == std::errc() && end == text.data() + text.size()) return steps;
  return std::nullopt;
}

void set_interval(run::RunOptions& run, const std::string& text) {
  run.checkpoint_auto = text == "auto";
  if (run.checkpoint_auto) return;
  run.checkpoint_steps = steps_in(text);
  if (text.find_first_of("0123456789") == std::string::npos) {
    throw Error(ErrorKind::usage, "--every: " + unknown_name(text, std::array<std::string, 2>{
                                                                       "auto", "or steps, or a time (90s)"}));
  }
  if (!run.checkpoint_steps) run.checkpoint_time = parse_seconds(text, "--every");
}

}  // namespace

plan::Plan load(const PlanFiles& files) {
  plan::Plan plan = cli::load(files.plan, plan::parse_plan);
  if (files.model.empty()) return plan;
  const ModelGraph model = cli::load(files.model, parse_model);
  with_context(cli::input_name(files.model), [&] { plan::require_model(plan, model); });
  plan.model = model;
  return plan;
}

cli::Option add_execution_options(const cli::Command& command, PlanFiles& files, run::ExecutionOptions& run,
                                  const std::string& group) {
  command.add_option("plan", files.plan, "a plan.json").required().type_name("PLAN");
  const auto data = [&](const char* name, auto& value, const char* summary) {
    return command.add_option(name, value, summary).group("Data");
  };
  const cli::Option source =
      data("--data", run.data,
           "`synthetic`, or a folder or file: IDX, CIFAR-10, safetensors, .npy, CSV, tokens")
          .required()
          .type_name("DATA");
  data("--data-format", run.data_format,
       "idx, cifar10, safetensors, npy, csv or tokens; default: by the names of the files")
      .type_name("FORMAT");
  data("--token-type", run.token_type, "the file is tokens: uint8 (any text), uint16 or uint32")
      .type_name("TYPE");
  data("--target-column", run.target_column, "of a CSV file; default: the last one").type_name("NAME");
  data("--synthetic-samples", run.synthetic_samples, "samples of synthetic data, in training per epoch")
      .check(cli::whole_number(1));
  data("--synthetic-drift", run.synthetic_drift,
       "synthetic data as a stream: how much of a turn their rule makes from sample to sample")
      .check(cli::number_from(0));
  data("--scale", run.scale, "multiplies the inputs; default: 1/(largest value) of integer types")
      .check(cli::number_from(0));
  command
      .add_option_function(
          "--autocast",
          [&run](const std::string& text) { run.autocast = cli::typed_name<Autocast>(text, "--autocast"); },
          "type of the products in forwards: " + list_names<Autocast>())
      .type_name("NAME")
      .group(group);
  command
      .add_option("--model", files.model,
                  "the plan's model as import-torch wrote it with weights, for plans of --plan-only")
      .type_name("FILE")
      .group(group);
  command
      .add_option("--initial-weights", run.initial_weights,
                  "begin with these weights, by name: safetensors, a folder of shards or of --checkpoint")
      .type_name("FILE")
      .group(group);
  command
      .add_flag("--ignore-unknown-weights", run.ignore_unknown_weights,
                "leave out tensors of --initial-weights that the model does not have")
      .group(group);
  command
      .add_flag("--random-weights,--draw-weights", run.random_weights,
                "draw weights from the seed, also where the model has its own or frozen ones")
      .group(group);
  cli::add_bytes(command, "--memory-limit", run.memory_limit,
                 "largest sum of tensors that a worker may hold; one that needs more ends the run")
      .group(group);
  cli::add_seconds(command, "--stall-timeout", run.stall_timeout, "a worker that waits this long stops the run")
      .default_str(pp::to_text(run.stall_timeout));
  return source;
}

cli::Option add_run_options(const cli::Command& command, PlanAndOptions& options) {
  run::RunOptions& run = options.run;
  const cli::Option data = add_execution_options(command, options.files, run, "Training");
  command
      .add_option("--test-share", run.test_share,
                  "share of the samples, from their end, to test with where there are no test files")
      .check(cli::number_from(0))
      .group("Data");
  command.add_flag("!--no-shuffle", run.shuffle, "keep the order of the data").group("Data");
  command.add_flag("--drop-last", run.drop_last, "leave out a last partial mini-batch that is too small")
      .group("Data");

  const cli::Option epochs =
      command.add_option("--epochs", run.epochs, "passes over the data").check(cli::whole_number(1));
  const cli::Option steps =
      command.add_option("--steps", run.steps, "optimizer steps").check(cli::whole_number(1));
  epochs.excludes(steps).group("Length");
  steps.group("Length");

  const auto training = [&](const char* name, auto& value, const char* summary) {
    command.add_option(name, value, summary).check(cli::number_from(0)).group("Training");
  };
  training("--learning-rate,--lr", run.learning_rate, "step size of the optimizer in the plan");
  command
      .add_option("--lr-schedule", run.lr_schedule,
                  "constant, step, cosine, or a file with lines of a step and its rate")
      .type_name("NAME|FILE")
      .group("Training");
  command.add_option("--warmup-steps", run.warmup_steps, "steps in which the learning rate rises from 0")
      .check(cli::whole_number(0))
      .group("Training");
  command.add_option("--lr-step-size", run.lr_step_size, "step: steps from one factor to the next")
      .check(cli::whole_number(1))
      .group("Training");
  training("--lr-factor", run.lr_factor, "step: multiplies the learning rate");
  training("--lr-min", run.lr_min, "cosine: learning rate at the end");
  command.add_option("--accumulate", run.accumulate, "mini-batches that make an update")
      .check(cli::whole_number(1, 1'000'000))
      .group("Training");
  training("--clip-norm", run.clip_norm, "largest norm of the gradient over all stages");
  training("--weight-decay", run.weight_decay, "added to the gradient; adamw: decoupled");
  command
      .add_option_function(
          "--no-decay", [&run](const std::string& text) { run.rules.no_decay = run::parse_patterns(text); },
          "weights without --weight-decay, by patterns of their names: bias,norm")
      .type_name("PATTERNS")
      .group("Training");
  command
      .add_option_function(
          "--lr-factors",
          [&run](const std::string& text) { run.rules.rate_factors = run::parse_rate_factors(text); },
          "times the learning rate, by patterns of names, the first that matches: embed=0.1,layers.0.*=0.5")
      .type_name("PATTERN=FACTOR,...")
      .group("Training");
  training("--momentum", run.momentum, "sgd: 0.9 unless given; rmsprop: 0");
  command.add_flag("--nesterov", run.nesterov, "sgd: Nesterov's momentum").group("Training");
  training("--beta1", run.beta1, "adam, adamw: 0.9 unless given");
  training("--beta2", run.beta2, "adam, adamw: 0.999 unless given");
  training("--alpha", run.alpha, "rmsprop, of the mean of squares: 0.99 unless given");
  training("--epsilon", run.epsilon, "adam, adamw, rmsprop: 1e-8 unless given; adagrad: 1e-10");
  training("--lr-decay", run.lr_decay, "adagrad: the rate is divided by 1 + decay * step");
  command
      .add_option_function(
          "--on-nan",
          [&run](const std::string& text) {
            run.on_nan = parse_enum<run::OnNan>(text, "--on-nan", ErrorKind::usage);
          },
          "when a loss or gradient is not finite, decided before the update: " + list_names<run::OnNan>())
      .type_name("NAME")
      .group("Training");
  command
      .add_option_function(
          "--all-reduce",
          [&run](const std::string& text) {
            run.all_reduce = parse_enum<run::AllReduce>(text, "--all-reduce", ErrorKind::usage);
          },
          "between ranks: with the bits of one process, or as MPI and NCCL add fastest: " +
              list_names<run::AllReduce>())
      .type_name("NAME")
      .group("Training");
  command
      .add_option("--loss-scale", run.loss_scale,
                  "multiplies losses, gradients are divided by it; float16 unless given: rises and falls")
      .check(cli::number_from(0))
      .group("Training");
  const auto replicas = [&](const char* name, auto& value, const char* summary, int least) {
    command.add_option(name, value, summary).check(cli::whole_number(least)).group("Parameter server");
  };
  replicas("--push-every", run.push_every, "downpour: mini-batches of a replica from one push to the next", 1);
  replicas("--fetch-every", run.fetch_every, "downpour: from one fetch to the next", 1);
  replicas("--staleness", run.staleness, "ssp: mini-batches that a replica may be ahead; 1 unless given", 0);
  replicas("--interleave", run.interleave, "the seed of a fixed order in which replicas come to the server", 0);
  command.add_option("--seed", run.seed, "of initial weights, dropout and shuffling")
      .check(cli::whole_number(0))
      .group("Training");
  const auto evaluations = [&](const char* name, auto& value, const char* summary) {
    command.add_option(name, value, summary).check(cli::whole_number(1)).type_name("N").group("Evaluation");
  };
  command.add_flag("!--no-evaluate", run.evaluate, "leave out evaluations").group("Evaluation");
  evaluations("--evaluate-every", run.evaluate_every,
              "steps from one evaluation to the next, and one at the end; default: after each epoch");
  command
      .add_flag("--keep-best", run.keep_best,
                "keep the checkpoint of the least test loss, and write its weights to --save-weights")
      .group("Evaluation");
  evaluations("--early-stop", run.early_stop,
              "end after so many evaluations in a row without a lesser test loss");
  command
      .add_option(
          "--resume", run.resume,
          "go on from the newest whole checkpoint of this folder, or from this one; begin where it is that of "
          "--checkpoint and has none")
      .type_name("DIR")
      .group("Checkpoints");
  command
      .add_option("--checkpoint", run.checkpoint, "write checkpoints to this folder, the last one at the end")
      .type_name("DIR")
      .group("Checkpoints");
  command
      .add_option_function(
          "--every", [&run](const std::string& text) { set_interval(run, text); },
          "from one checkpoint to the next: steps, or a time (90s, 10min), or auto: as little time as possible "
          "is "
          "lost to checkpoints and failures; default: an epoch")
      .type_name("N|TIME|auto")
      .group("Checkpoints");
  command
      .add_option_function(
          "--mean-time-between-failures",
          [&run](const std::string& text) {
            run.between_failures = parse_seconds(text, "--mean-time-between-failures");
          },
          "for --every auto: how often one of all the machines fails (12h)")
      .type_name("TIME")
      .group("Checkpoints");
  command.add_option("--keep", run.checkpoints_kept, "checkpoints that are kept, the newest")
      .check(cli::whole_number(1))
      .group("Checkpoints");
  command.add_flag(
      "--cuda-graphs", run.cuda_graphs,
      "CUDA: record passes as CUDA graphs and replay them, for small layers; the bits are the same");
  command.add_flag("--wait-each-operation", run.wait_each_operation,
                   "CUDA: wait for the device after every operation, for measuring; the bits are the same");
  return data;
}

void add_restart_options(const cli::Command& command, RestartOptions& options, const std::string& when,
                         const std::string& group) {
  command.add_flag("--keep-going", options.keep_going, when).group(group);
  command
      .add_option(
          "--attempts", options.attempts,
          "with --keep-going: give up after so many starts in a row without a new checkpoint; default: 3")
      .check(cli::whole_number(1, 1'000'000))
      .type_name("N")
      .group(group);
  command
      .add_option_function(
          "--rebalance",
          [&options](const std::string& text) { options.rebalance = parse_seconds(text, "--rebalance"); },
          "with --keep-going: where devices are slower than planned, go on with a plan for their speeds after "
          "a "
          "checkpoint, if that repays the restart within this time (10min)")
      .type_name("TIME")
      .group(group);
  command
      .add_option("--profile", options.profile,
                  "with --keep-going: the profile that the plan was made from, for new plans")
      .type_name("FILE")
      .group(group);
}

void check_restart(const RestartOptions& options) {
  for (const auto& [option, given] : {std::pair{"--attempts", options.attempts.has_value()},
                                      std::pair{"--rebalance", options.rebalance.has_value()},
                                      std::pair{"--profile", !options.profile.empty()}})
    if (given && !options.keep_going)
      throw Error(ErrorKind::usage, std::string(option) + " belongs to --keep-going; add that");
  if (options.rebalance && options.profile.empty())
    throw Error(ErrorKind::usage,
                "--keep-going: --rebalance plans anew with the profile that the plan was made from; give it "
                "with --profile FILE");
}

std::optional<Profile> load_profile(const RestartOptions& options, const plan::Plan& plan) {
  if (options.profile.empty()) return std::nullopt;
  Profile profile = cli::load(options.profile, parse_profile);
  with_context(options.profile, [&] { plan::require_whole_profile(plan, profile); });
  return profile;
}

void claim_data(const run::ExecutionOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(options.data, ignored)) cli::claim_input(options.data);
  for (const auto& file : std::filesystem::directory_iterator(options.data, ignored))
    cli::claim_input(file.path().string());
  if (std::filesystem::is_regular_file(options.initial_weights, ignored))
    cli::claim_input(options.initial_weights.string());
}

}  // namespace pp::run_tool
