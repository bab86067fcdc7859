// The options of trainings and inferences, a row each.
#include "librun/options/run_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/options.h"
#include "libprofile/core/text.h"

namespace pp::run {

namespace {

using enum Recorded;

bool is_synthetic(const ExecutionOptions& options) { return options.data == "synthetic"; }
bool falls_in_steps(const RunOptions& options) { return options.lr_schedule == "step"; }
bool falls_as_cosine(const RunOptions& options) { return options.lr_schedule == "cosine"; }

void take_no_decay(RunOptions& options, const std::string& text) {
  options.rules.no_decay = parse_patterns(text);
}
std::optional<OptionValue> tell_no_decay(const RunOptions& options) {
  if (options.rules.no_decay.empty()) return std::nullopt;
  return text_of_patterns(options.rules.no_decay);
}

void take_rate_factors(RunOptions& options, const std::string& text) {
  options.rules.rate_factors = parse_rate_factors(text);
}
std::optional<OptionValue> tell_rate_factors(const RunOptions& options) {
  if (options.rules.rate_factors.empty()) return std::nullopt;
  return text_of_factors(options.rules.rate_factors);
}

void take_interval(RunOptions& options, const std::string& text) {
  options.checkpoint_auto = text == "auto";
  if (options.checkpoint_auto) return;
  if (text.find_first_of("0123456789") == std::string::npos)
    refuse(ErrorKind::usage,
           "--every: " + unknown_name(text, std::array<std::string, 2>{"auto", "or steps, or a time (90s)"}));
  std::int64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  if (error == std::errc() && end == text.data() + text.size())
    options.checkpoint_steps = steps;
  else
    options.checkpoint_time = parse_seconds(text, "--every");
}
std::optional<OptionValue> tell_interval(const RunOptions& options) {
  if (options.checkpoint_auto) return "auto";
  if (options.checkpoint_time) return to_text(*options.checkpoint_time);
  if (options.checkpoint_steps) return counted(*options.checkpoint_steps, "step");
  return std::nullopt;
}

using Execution = ExecutionOptions;
constexpr auto kExecution = options(
    option<&Execution::data>(
        "--data", "`synthetic`, or a folder or file: IDX, CIFAR-10, safetensors, .npy, CSV, tokens",
        {.group = "Data", .value = "DATA", .required = true, .recorded = compared, .recorded_always = true}),
    option<&Execution::data_format>(
        "--data-format", "idx, cifar10, safetensors, npy, csv or tokens; default: by the names of the files",
        {.value = "FORMAT", .recorded = compared}),
    option<&Execution::token_type>("--token-type", "the file is tokens: uint8 (any text), uint16 or uint32",
                                   {.value = "TYPE", .recorded = compared}),
    option<&Execution::target_column>("--target-column", "of a CSV file; default: the last one",
                                      {.value = "NAME", .recorded = compared}),
    option<&Execution::synthetic_samples>(
        "--synthetic-samples", "samples of synthetic data, in training per epoch",
        {.least = 1, .recorded = compared, .recorded_always = true, .recorded_if = where<is_synthetic>}),
    option<&Execution::synthetic_drift>(
        "--synthetic-drift",
        "synthetic data as a stream: how much of a turn their rule makes from sample to sample",
        {.least = 0, .recorded = compared}),
    option<&Execution::scale>("--scale", "multiplies the inputs; default: 1/(largest value) of integer types",
                              {.least = 0, .recorded = compared}),
    option<&Execution::autocast>("--autocast", "type of the products in forwards",
                                 {.group = "Model", .recorded = compared}),
    option<&Execution::initial_weights>(
        "--initial-weights",
        "begin with these weights, by name: safetensors, a folder of shards or of --checkpoint",
        {.value = "FILE"}),
    option<&Execution::ignore_unknown_weights>(
        "--ignore-unknown-weights", "leave out tensors of --initial-weights that the model does not have"),
    option<&Execution::random_weights>(
        "--random-weights,--draw-weights",
        "draw weights from the seed, also where the model has its own or frozen ones"),
    option<&Execution::seed>(
        "--seed", "of all that is drawn: weights, dropout, the order of the data, synthetic data, tokens",
        {.least = 0}),
    option<&Execution::memory_limit>(
        "--memory-limit", "largest sum of tensors that a worker may hold; one that needs more ends the run",
        {.least = 0, .above = true, .recorded = told, .recorded_as = "memory_limit_bytes"}),
    option<&Execution::stall_timeout>("--stall-timeout", "a worker that waits this long stops the run",
                                      {.group = "Options", .least = 0, .above = true}));

constexpr auto kTraining = options(
    option<&RunOptions::test_share>(
        "--test-share", "share of the samples, from their end, to test with where there are no test files",
        {.group = "Data", .least = 0, .most = 1, .below = true, .recorded = compared}),
    option<&RunOptions::shuffle>("!--no-shuffle", "keep the order of the data",
                                 {.recorded = compared, .recorded_always = true}),
    option<&RunOptions::drop_last>("--drop-last", "leave out a last partial mini-batch that is too small",
                                   {.recorded = compared, .recorded_always = true}),

    option<&RunOptions::learning_rate>(
        "--learning-rate,--lr", "step size of the optimizer in the plan",
        {.group = "Training", .least = 0, .recorded = compared, .recorded_always = true}),
    option<&RunOptions::lr_schedule>("--lr-schedule",
                                     "constant, step, cosine, or a file with lines of a step and its rate",
                                     {.value = "NAME|FILE", .recorded = compared, .recorded_always = true}),
    option<&RunOptions::warmup_steps>("--warmup-steps", "steps in which the learning rate rises from 0",
                                      {.least = 0, .recorded = compared}),
    option<&RunOptions::lr_step_size>(
        "--lr-step-size", "step: steps from one factor to the next",
        {.least = 1, .recorded = compared, .recorded_always = true, .recorded_if = where<falls_in_steps>}),
    option<&RunOptions::lr_factor>(
        "--lr-factor", "step: multiplies the learning rate",
        {.least = 0, .recorded = compared, .recorded_always = true, .recorded_if = where<falls_in_steps>}),
    option<&RunOptions::lr_min>(
        "--lr-min", "cosine: learning rate at the end",
        {.least = 0, .recorded = compared, .recorded_always = true, .recorded_if = where<falls_as_cosine>}),
    option<&RunOptions::accumulate>("--accumulate", "mini-batches that make an update",
                                    {.least = 1, .recorded = compared}),
    option<&RunOptions::clip_norm>("--clip-norm", "largest norm of the gradient over all stages",
                                   {.least = 0, .above = true, .recorded = compared, .found_together = "norm"}),
    option<&RunOptions::weight_decay>("--weight-decay", "added to the gradient; adamw: decoupled",
                                      {.least = 0, .recorded = compared, .recorded_always = true}),
    parsed<take_no_decay, tell_no_decay>(
        "--no-decay", "weights without --weight-decay, by patterns of their names: bias,norm",
        {.value = "PATTERNS", .recorded = compared}),
    parsed<take_rate_factors, tell_rate_factors>(
        "--lr-factors",
        "times the learning rate, by patterns of names, the first that matches: embed=0.1,layers.0.*=0.5",
        {.value = "PATTERN=FACTOR,...", .recorded = compared}),
    option<&RunOptions::on_nan>("--on-nan", "when a loss or gradient is not finite, decided before the update",
                                {.recorded = compared, .found_together = "decision"}),
    option<&RunOptions::all_reduce>(
        "--all-reduce", "between ranks: with the bits of one process, or as MPI and NCCL add fastest",
        {.recorded = compared}),
    option<&RunOptions::loss_scale>(
        "--loss-scale", "multiplies losses, gradients are divided by it; float16 unless given: rises and falls",
        {.least = 0, .above = true, .recorded = compared, .found_together = "decision"}),

    option<&RunOptions::epochs>("--epochs", "passes over the data",
                                {.group = "Length", .least = 1, .recorded = told}),
    option<&RunOptions::steps>("--steps", "optimizer steps",
                               {.least = 1, .most = kMostSteps, .not_with = "--epochs", .recorded = told}),

    option<&RunOptions::push_every>("--push-every",
                                    "downpour: mini-batches of a replica from one push to the next",
                                    {.group = "Parameter server",
                                     .least = 1,
                                     .most = 1'000'000,
                                     .recorded = compared,
                                     .read_by = "downpour"}),
    option<&RunOptions::fetch_every>(
        "--fetch-every", "downpour: from one fetch to the next",
        {.least = 1, .most = 1'000'000, .recorded = compared, .read_by = "downpour"}),
    // Each is a gradient of every replica in memory.
    option<&RunOptions::staleness>("--staleness",
                                   "ssp: mini-batches that a replica may be ahead; 1 unless given",
                                   {.least = 0, .most = 1000, .recorded = compared, .read_by = "ssp"}),
    option<&RunOptions::interleave>(
        "--interleave", "the seed of a fixed order in which replicas come to the server",
        {.least = 0, .recorded = compared, .read_by = "parameter-server, downpour, ssp or hogwild"}),

    option<&RunOptions::evaluate>("!--no-evaluate", "leave out evaluations",
                                  {.group = "Evaluation", .recorded = told, .recorded_always = true}),
    option<&RunOptions::evaluate_every>(
        "--evaluate-every",
        "steps from one evaluation to the next, and one at the end; default: after each epoch",
        {.value = "N", .least = 1, .recorded = told}),
    option<&RunOptions::keep_best>(
        "--keep-best", "keep the checkpoint of the least test loss, and write its weights to --save-weights",
        {.recorded = told}),
    option<&RunOptions::early_stop>("--early-stop",
                                    "end after so many evaluations in a row without a lesser test loss",
                                    {.value = "N", .least = 1, .recorded = told}),

    option<&RunOptions::resume>(
        "--resume",
        "go on from the newest whole checkpoint of this folder, or from this one; begin where it is that of "
        "--checkpoint and has none",
        {.group = "Checkpoints", .value = "DIR"}),
    option<&RunOptions::checkpoint>("--checkpoint", "write checkpoints to this folder, the last one at the end",
                                    {.value = "DIR"}),
    parsed<take_interval, tell_interval>(
        "--every",
        "from one checkpoint to the next: steps, or a time (90s, 10min), or auto: as little time as possible "
        "is "
        "lost to checkpoints and failures; default: an epoch",
        {.value = "N|TIME|auto", .recorded = told, .recorded_as = "checkpoint_every"}),
    option<&RunOptions::between_failures>("--mean-time-between-failures",
                                          "for --every auto: how often one of all the machines fails (12h)",
                                          {.least = 0, .above = true}),
    option<&RunOptions::checkpoints_kept>("--keep", "checkpoints that are kept, the newest", {.least = 1}),

    option<&RunOptions::cuda_graphs>(
        "--cuda-graphs",
        "CUDA: record passes as CUDA graphs and replay them, for small layers; the bits are the same",
        {.group = "Options"}),
    option<&RunOptions::wait_each_operation>(
        "--wait-each-operation",
        "CUDA: wait for the device after every operation, for measuring; the bits are the same"));

constexpr auto kWeightOutput =
    options(option<&RunOptions::save_weights>(
                "--save-weights",
                "write the trained weights as safetensors: a file; a folder (NAME/, or one that is there) or "
                "NAME.safetensors.index.json: in shards with an index, as Hugging Face does",
                {.group = "Results", .value = "PATH"}),
            option<&RunOptions::shard_bytes>("--shard-size", "the most that a shard of weights holds"));

}  // namespace

OptionRows<ExecutionOptions> execution_options() { return kExecution; }
OptionRows<RunOptions> training_options() { return kTraining; }
OptionRows<RunOptions> weight_output_options() { return kWeightOutput; }

bool is_compared(std::string_view setting) {
  const auto only_told = [&](const OptionRow& row) { return row.recorded == told && key_of(row) == setting; };
  return std::ranges::none_of(kExecution, only_told) && std::ranges::none_of(kTraining, only_told);
}

}  // namespace pp::run
