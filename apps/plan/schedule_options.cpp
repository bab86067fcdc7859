#include "apps/plan/schedule_options.h"

#include <algorithm>
#include <tuple>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/plan/planning_options.h"
#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/program_text.h"
#include "libprofile/core/index.h"

namespace pp::plan_tool {

namespace {

std::vector<int> counts(const std::string& text, char separator, const std::string& option) {
  return text.empty() ? std::vector<int>{} : cli::parse_counts(text, separator, option);
}

/// K equal places; data parallelism has its workers in one.
std::vector<int> replicas_of(const ScheduleOptions& options) {
  if (!options.replicas.empty()) {
    std::vector<int> replicas = cli::parse_counts(options.replicas, '-', "--replicas");
    if (replicas.size() == 1) replicas.resize(at(std::max(options.stages, 1)), replicas.front());
    if (options.stages == 0 || std::ssize(replicas) == options.stages) return replicas;
    throw Error(ErrorKind::usage, "--stages asks for " + std::to_string(options.stages) +
                                      " workers, --replicas for " + std::to_string(replicas.size()) +
                                      "; leave one of the two out");
  }
  if (options.stages == 0) {
    throw Error(ErrorKind::usage, "--schedule needs the number of workers; add --stages K, or --replicas R-R");
  }
  const plan::ScheduleRow* row = plan::find_schedule(options.study.request.name);
  if (row != nullptr && row->one_stage) return {options.stages};
  return std::vector<int>(static_cast<std::size_t>(options.stages), 1);
}

std::vector<plan::Recompute> recompute_of(const std::string& text) {
  std::vector<plan::Recompute> modes;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    modes.push_back(typed_name<plan::Recompute>(text.substr(begin, end - begin), "--recompute"));
    begin = end + 1;
  }
  return modes;
}

/// --micro-batches counts a step, or the whole stream of an asynchronous schedule, whose step is --per-update.
void set_length(const ScheduleOptions& options, plan::ScheduleStudy& study) {
  const plan::ScheduleRow& row = plan::require_schedule(study.request.name);
  if (row.synchronous) return;
  study.stream_length = study.request.micro_batches;
  const bool aggregates = row.default_policy() == plan::WeightPolicy::two_buffered ||
                          row.default_policy() == plan::WeightPolicy::macrobatch;
  const int by_default =
      aggregates ? static_cast<int>(study.request.replicas.size()) * study.request.replicas.front() : 1;
  study.request.micro_batches = options.per_update > 0 ? options.per_update : by_default;
  if (row.rules != plan::RuleSet::clocked)
    plan::check_stream_length(study.request.replicas, study.stream_length);
}

using plan::ScheduleRequest;
using plan::ScheduleStudy;
constexpr auto kSchedule = options(
    option<&ScheduleOptions::study, &ScheduleStudy::request, &ScheduleRequest::name>(
        "--schedule", "a name of `pp-plan schedules`",
        {.group = "A schedule by itself", .value = "NAME", .not_with = "plan"}),
    option<&ScheduleOptions::csv>("--csv",
                                  "programs in PyTorch's exchange form: a row per worker, 0F0,0F1,0B0,..",
                                  {.value = "FILE", .not_with = "plan,--schedule"}),
    option<&ScheduleOptions::stages>("--stages", "pipeline workers",
                                     {.least = 1, .most = plan::kOperationLimit}),
    option<&ScheduleOptions::replicas>("--replicas", "workers per stage: 3-1; one number: of each",
                                       {.value = "R-R"}),
    option<&ScheduleOptions::study, &ScheduleStudy::request, &ScheduleRequest::micro_batches>(
        "--micro-batches",
        "per step; asynchronous: of the stream; generation: sequence groups; partime: frames", {.least = 1}),
    option<&ScheduleOptions::per_update>("--per-update", "micro-batches per update, 2bw and macrobatch",
                                         {.least = 1}),
    option<&ScheduleOptions::study, &ScheduleStudy::request, &ScheduleRequest::chunks_per_worker>(
        "--chunks", "stages per worker", {.least = 1}),
    option<&ScheduleOptions::study, &ScheduleStudy::request, &ScheduleRequest::group>(
        "--group", "interleaved: micro-batches per turn of a chunk", {.least = 1}),
    option<&ScheduleOptions::costs>(
        "--costs", "of a worker's whole share per micro-batch: F, I, W, B, R, AR, U, L, E; comm is latency",
        {.value = "KEY=TIME,..", .standard = "F=1,I=1,W=1,comm=0"}),
    option<&ScheduleOptions::window>(
        "--window", "micro-batches in flight of 1F1B kinds: win, published, wide, or K0,K1,.."),
    option<&ScheduleOptions::in_flight_limits>(
        "--in-flight-limit", "most micro-batches in flight, for all workers or per worker", {.value = "N,N"}),
    option<&ScheduleOptions::recompute>(
        "--recompute", "activation checkpointing: never, except_last or always; for all stages, or per stage",
        {.value = "MODE,.."}),
    option<&ScheduleOptions::study, &ScheduleStudy::recompute_start>("--recompute-start", "when R may start"),
    option<&ScheduleOptions::tokens>("--tokens", "generation: tokens per group", {.least = 1}),
    option<&ScheduleOptions::study, &ScheduleStudy::request, &ScheduleRequest::tokens,
           &plan::TokenLoop::barrier>("--barrier", "generation: all groups wait for each token"),
    option<&ScheduleOptions::forward_packs>("--forward-packs", "harmony: stages per forward task",
                                            {.value = "N,N"}),
    option<&ScheduleOptions::backward_packs>("--backward-packs", "harmony: stages per backward task",
                                             {.value = "N,N"}));

}  // namespace

void add_schedule_options(const cli::Command& command, ScheduleOptions& options) {
  cli::add_options(command, kSchedule, options);
}

plan::ScheduleStudy study_of(const ScheduleOptions& options) {
  plan::ScheduleStudy study = options.study;
  study.costs = plan::parse_share_costs(options.costs);
  study.in_flight_limits = counts(options.in_flight_limits, ',', "--in-flight-limit");
  if (!options.csv.empty()) {
    study.programs = cli::load(options.csv, plan::parse_csv);
    return study;
  }
  plan::ScheduleRequest& request = study.request;
  request.replicas = replicas_of(options);
  request.token_count = options.tokens;
  request.recompute = recompute_of(options.recompute);
  request.forward_packs = counts(options.forward_packs, ',', "--forward-packs");
  request.backward_packs = counts(options.backward_packs, ',', "--backward-packs");
  if (!options.window.empty()) std::tie(request.window, request.windows) = parse_window(options.window);
  set_length(options, study);
  return study;
}

plan::PlanRequest trainer_request(plan::Trainer trainer, plan::PlanRequest request, const RequestOptions& given,
                                  const Profile& profile) {
  if (given.optimizer && given.optimizer->count() == 0) request.optimizer = OptimizerName::adamw;
  if (given.precision && given.precision->count() == 0 && profile.dtype == DType::bfloat16)
    request.precision = plan::Precision::mixed;
  plan::check_model(trainer, profile);
  return plan::for_trainer(trainer, std::move(request), profile.dtype);
}

void introduce(plan::Trainer trainer, const RequestOptions& given, const Profile& profile) {
  if (given.optimizer && given.optimizer->count() == 0)
    cli::inform("--for " + std::string(name_of(trainer)) + " plans with --optimizer adamw, as none is given");
  if (!plan::caveat_of(trainer).empty() && profile.shard_group.degree == 1) cli::warn(plan::caveat_of(trainer));
  if (profile.trainer && !plan::goes_with(trainer, profile.trainer->name)) {
    cli::warn("--for " + std::string(name_of(trainer)) + ": the profile's times are of steps by " +
              profile.trainer->name + "; estimate with --trainer " + std::string(name_of(trainer)));
  }
}

std::optional<int> divisible_mini_batch(int mini_batch, int devices) {
  if (mini_batch % devices == 0) return std::nullopt;
  return std::max(1, (mini_batch + devices / 2) / devices) * devices;
}

}  // namespace pp::plan_tool
