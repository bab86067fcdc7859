// All checks before a run, and what follows from them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "libprofile/core/error.h"
#include "libprofile/core/limits.h"
#include "libprofile/core/model/counted_labels.h"
#include "libprofile/core/options.h"
#include "libprofile/device/machine.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/data/model_data.h"
#include "librun/options/settings.h"
#include "librun/setup/check_setup.h"
#include "librun/setup/checks.h"
#include "librun/setup/host_memory.h"
#include "librun/setup/served.h"
#include "librun/setup/start.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

void check_options(const RunOptions& options) {
  if (options.epochs.has_value() == options.steps.has_value()) {
    refuse(ErrorKind::usage, "give the length of the run as one of --epochs and --steps");
  }
  check_ranges(training_options(), options);
  check_execution(options);
}

void check_model(const ResolvedModel& model) {
  check_runnable(model);
  if (!model.graph.loss) {
    refuse(ErrorKind::data,
           "model \"" + model.graph.name + "\" has no loss; add one to train it, or run it with pp-run infer");
  }
  counted_labels(model);  // refuses a loss that no plan could train
  if (parameter_count(model) > 0 && !model.loss.backward) {
    refuse(ErrorKind::data, "model \"" + model.graph.name +
                                "\": nothing can be trained: its parameters are frozen, or the loss depends on "
                                "none of them");
  }
}

// Batch norm needs two values per channel in the smallest micro-batch.
void check_batch_norm(const plan::Plan& plan, const ResolvedModel& model, int smallest_mini_batch) {
  const int smallest = smallest_mini_batch / plan.training.micro_batches;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    for (const BatchNorm& norm : batch_norms(model, static_cast<int>(i))) {
      const std::int64_t values = smallest * norm.values;
      if (values >= 2) continue;
      refuse(ErrorKind::data, "layer \"" + model.graph.layers[i].name + "\": batch norm: a micro-batch of " +
                                  std::to_string(smallest) + " samples has " + std::to_string(values) +
                                  " value per channel; lower micro_batches or use --drop-last");
    }
  }
}

// All workers meet when all gradients of a step are known, and before the first update.
void check_meeting(const plan::Plan& plan, const std::string& option, const std::string& what) {
  for (const plan::Worker& worker : plan.workers) {
    const std::string who = "worker " + std::to_string(number(worker.id));
    if (worker.program.stream) {
      refuse(ErrorKind::usage, option + ": the stages of schedule " + plan.schedule.name +
                                   " are updated at different times, so there is no " + what +
                                   " over all of them; plan with a synchronous schedule");
    }
    const plan::Program& program = worker.program.program;
    const auto first = std::ranges::find(program, plan::OpKind::update, &plan::Op::kind);
    const auto late =
        std::find_if(first, program.end(), [](const plan::Op& op) { return op.kind != plan::OpKind::update; });
    if (late != program.end()) {
      refuse(ErrorKind::usage, option + ": " + who + " lists " + plan::to_text(*late) + " after " +
                                   plan::to_text(*first) + ", so the " + what +
                                   " over all gradients is not known before the first update");
    }
  }
}

void check_loss_scale(const plan::Plan& plan, const RunOptions& options) {
  if (!options.loss_scale && options.scales_losses()) check_meeting(plan, "--autocast float16", "decision");
  if (options.scales_dynamically() && options.on_nan == OnNan::stop) {
    refuse(ErrorKind::usage,
           "--on-nan stop: under --autocast float16 the loss scale is found by skipping steps that are not "
           "finite; leave --on-nan out, or give a --loss-scale");
  }
}

void check_accumulation(const plan::Plan& plan, const RunOptions& options) {
  if (options.accumulate == 1 || !plan.workers.front().program.stream) return;
  refuse(ErrorKind::usage,
         "--accumulate: schedule " + plan.schedule.name +
             " is asynchronous, its updates stand in the plan; plan with macrobatch, or with a "
             "synchronous schedule");
}

void check_prediction(const plan::Plan& plan, const RunOptions& options) {
  const OptimizerName optimizer = plan.training.optimizer;
  if (plan.schedule.weight_policy != plan::WeightPolicy::predict || has_direction(optimizer, options.optimizer))
    return;
  const bool could = std::ranges::any_of(row_of(optimizer).slots, &OptimizerSlotRow::is_direction);
  refuse(ErrorKind::usage,
         "weight policy predict follows the optimizer's momentum, and " + std::string(name_of(optimizer)) +
             " has none" + (could ? " at momentum 0; give --momentum" : "; plan with --optimizer sgd or adam"));
}

/// Nothing of it is there: one GPU has a whole stage, whole samples, and products in the type of its weights.
void check_groups(const plan::Plan& plan) {
  const std::string elsewhere = ", or take the plan elsewhere with pp-plan export" + std::string(kLimits);
  if (plan.context_degree > 1)
    refuse(ErrorKind::usage, "the plan splits every sample over " + std::to_string(plan.context_degree) +
                                 " GPUs, which pp-run does not; plan from a profile without "
                                 "--context-parallel" +
                                 elsewhere);
  if (plan.expert_degree > 1)
    refuse(ErrorKind::usage, "the plan divides experts over " + std::to_string(plan.expert_degree) +
                                 " GPUs, which pp-run does not; plan from a profile without --expert-parallel" +
                                 elsewhere);
  if (plan.shard_group.degree > 1)
    refuse(ErrorKind::usage,
           "the plan shards its weights over " + std::to_string(plan.shard_group.degree) +
               " GPUs, which pp-run does not; plan from a profile without --shard-degree, with "
               "--shard optimizer" +
               elsewhere);
  if (plan.training.products)
    refuse(ErrorKind::usage, "the plan has products in " + std::string(name_of(*plan.training.products)) +
                                 ", which pp-run does not; plan from a profile of another --dtype" + elsewhere);
  if (plan.tensor_degree <= 1) return;
  refuse(ErrorKind::usage, "the plan splits every layer over " + std::to_string(plan.tensor_degree) +
                               " GPUs, which pp-run does not; plan from a profile of tensor degree 1" +
                               elsewhere);
}

// Replicas that divide the optimizer's state meet at the end of each update, so they update their stages in one
// order.
void check_shard(const plan::Plan& plan, bool together) {
  if (plan.training.shard == plan::Shard::none) return;
  if (!together) {
    refuse(ErrorKind::usage, "the plan lets replicas share the optimizer's state, which schedule " +
                                 plan.schedule.name +
                                 " cannot: its replicas do not update together; plan with --shard none, or "
                                 "with 1f1b");
  }
  for (const plan::Worker& worker : plan.workers) {
    std::optional<StageId> before;
    for (const plan::Op& op : worker.program.program) {
      if (op.kind != plan::OpKind::update) continue;
      if (before && op.stage < *before) {
        refuse(ErrorKind::data, "worker " + std::to_string(number(worker.id)) + " updates stage " +
                                    std::to_string(number(op.stage)) + " after stage " +
                                    std::to_string(number(*before)) +
                                    ": replicas that share the optimizer's state would wait for each other; "
                                    "list updates by ascending stage, or plan with --shard none");
      }
      before = op.stage;
    }
  }
}

// Whoever owns a slice adds it, in the order of the replicas; the library's sum has no owners.
void check_all_reduce(const plan::Plan& plan, const RunOptions& options) {
  if (options.all_reduce != AllReduce::fast || plan.training.shard == plan::Shard::none) return;
  refuse(ErrorKind::usage,
         "--all-reduce fast: in this plan replicas share the optimizer's state, so each adds its own slice of "
         "the gradients, in their order; leave it out, or plan with --shard none");
}

void check_master(const plan::Plan& plan, bool together) {
  if (plan.training.precision != plan::Precision::mixed) return;
  if (size_of(plan.training.dtype) != 2) {
    refuse(ErrorKind::data, "/training/precision: mixed keeps a float32 master of half weights, and dtype is " +
                                std::string(name_of(plan.training.dtype)) +
                                "; profile the model with --dtype bfloat16");
  }
  if (!together) {
    refuse(ErrorKind::usage,
           "the plan is for half weights with a float32 master, which pp-run keeps with "
           "synchronous schedules alone; plan with 1f1b, or with --precision plain");
  }
}

// What the plan keeps beside the weights, for schedules whose stages have one version of them.
void check_state(const plan::Plan& plan) {
  const plan::ScheduleRow& row = plan::require_schedule(plan.schedule.name);
  const bool together = row.synchronous && row.rules == plan::RuleSet::standard;
  check_shard(plan, together);
  check_master(plan, together);
}

// The copies are updated together, which a stream's stages are not.
void check_tied(const plan::Plan& plan, bool streams) {
  if (plan.tied.empty() || !streams) return;
  const plan::TiedParameter& tied = plan.tied.front();
  std::string stages;
  for (const StageId stage : tied.stages)
    stages.append(stages.empty() ? "" : ", ").append(std::to_string(number(stage)));
  refuse(ErrorKind::data, "/tied/0: stages " + stages + " have copies of " + tied.parameter +
                              ": an asynchronous schedule keeps shared weights in one stage; plan with "
                              "--tied stage");
}

// Returns the number of training samples, and sets what the data say.
std::int64_t set_data(Setup& setup, const RunOptions& options) {
  std::int64_t training = options.synthetic_samples;
  if (options.data == "synthetic") {
    setup.test_samples = std::max(1, options.synthetic_samples / 4);
  } else {
    setup.files = open_data({.model = setup.model,
                             .path = options.data,
                             .format = options.data_format,
                             .token_type = options.token_type,
                             .target_column = options.target_column,
                             .test_share = options.test_share});
    for (std::size_t i = 0; i < setup.model.graph.inputs.size(); ++i)
      input_scale(setup.model.graph.inputs[i], setup.files->training.inputs[i], options.scale);
    training = setup.files->training.samples;
    setup.test_samples = setup.files->test ? setup.files->test->samples : 0;
  }
  if (!options.evaluate) setup.test_samples = 0;
  return training;
}

double bytes_in_memory(const Setup& setup, std::int64_t training) {
  if (setup.files) return setup.files->bytes_in_memory;
  return static_cast<double>(training + setup.test_samples) * synthetic_sample_bytes(setup.model.graph);
}

// Weights, gradients and the optimizer's state, in bytes per byte of weights: of half ones the others are
// float32, the state with a master.
double copies_of(const plan::Plan& plan, double state) {
  return plan.training.precision == plan::Precision::mixed ? 1 + 2 + 2 * (1 + state) : 2 + state;
}

// The stage whose replicas decide how streams end, and the multiple that suits all of them.
std::pair<int, int> rounds(const plan::Plan& plan) {
  std::int64_t common = 1;
  int stage = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::int64_t joint = std::lcm(common, std::ssize(plan.stages[s].workers));
    if (joint != common) stage = static_cast<int>(s);
    common = joint;
    if (common > kMostSteps) {
      refuse(ErrorKind::data, "the replicas of stages 0 to " + std::to_string(s) + " meet after " +
                                  std::to_string(common) + " mini-batches, the limit is " +
                                  std::to_string(kMostSteps) +
                                  "; plan replicas with a smaller common multiple");
    }
  }
  return {static_cast<int>(common), stage};
}

Length find_length(const plan::Plan& plan, const RunOptions& options, std::int64_t samples, int round,
                   int round_stage) {
  EpochRequest request{samples,
                       plan.training.mini_batch,
                       plan.training.micro_batches,
                       options.drop_last,
                       round,
                       round_stage,
                       plan.schedule.name,
                       options.data};
  Length length;
  length.epoch = epoch_shape(request);
  length.epoch.accumulate = static_cast<int>(std::min<std::int64_t>(options.accumulate, length.epoch.count));
  const std::int64_t largest = std::int64_t{length.epoch.accumulate} * length.epoch.mini_batch;
  if (largest > std::numeric_limits<int>::max()) {
    refuse(ErrorKind::usage, "accumulate = " + std::to_string(options.accumulate) + ": steps of " +
                                 std::to_string(largest) + " samples are more than 2^31 - 1; use fewer");
  }
  const Step steps = length.epoch.steps();
  const int epochs = options.epochs.value_or(1);
  if (!options.steps && steps > kMostSteps / epochs) {
    refuse(ErrorKind::usage, "epochs = " + std::to_string(epochs) + " of " + std::to_string(steps) +
                                 " steps each are more than " + std::to_string(kMostSteps) +
                                 " steps, the limit; use fewer");
  }
  length.total = options.steps.value_or(steps * epochs);
  if (length.total % round != 0) {
    const Step below = length.total - length.total % round;
    refuse(ErrorKind::usage, "steps = " + std::to_string(length.total) + " is not a multiple of the " +
                                 std::to_string(round) + " replicas of stage " + std::to_string(round_stage) +
                                 "; use " + (below > 0 ? std::to_string(below) + " or " : "") +
                                 std::to_string(below + round));
  }
  return length;
}

Step find_evaluations(const RunOptions& options, const Setup& setup) {
  const char* const option = options.evaluate_every ? "--evaluate-every"
                             : options.keep_best    ? "--keep-best"
                             : options.early_stop   ? "--early-stop"
                                                    : nullptr;
  if (option != nullptr && setup.test_samples == 0) {
    refuse(ErrorKind::usage, std::string(option) + ": nothing is evaluated: " +
                                 (options.evaluate ? "there are no test data; give files of them, or "
                                                     "--test-share 0.1"
                                                   : "--no-evaluate says so; leave that out"));
  }
  if (options.keep_best && options.checkpoint.empty())
    refuse(ErrorKind::usage, "--keep-best keeps the best checkpoint; give their folder with --checkpoint");
  if (setup.test_samples == 0) return 0;
  // The best so far is read again at the end.
  if (const std::optional<Evaluated>& found = setup.start.position.evaluated; options.keep_best && found) {
    const std::filesystem::path best = place_of_checkpoint(options.checkpoint, found->best_step);
    if (!has_checkpoints(best)) {
      refuse(ErrorKind::usage, "--keep-best: the best so far is of step " + std::to_string(found->best_step) +
                                   ", and there is no " + best.string() +
                                   "; go on in the folder that has it, or leave --keep-best out");
    }
  }
  const Step every = options.evaluate_every.value_or(setup.length.epoch.steps());
  if (every % setup.round != 0) {
    refuse(ErrorKind::usage, "--evaluate-every " + std::to_string(every) +
                                 ": this plan's replicas take turns in rounds of " +
                                 std::to_string(setup.round) + " mini-batches; use a multiple");
  }
  return every;
}

RateSchedule find_rates(const RunOptions& options, Step total) {
  RateSchedule rates{.warm_up = options.warmup_steps,
                     .period = options.lr_step_size,
                     .factor = options.lr_factor,
                     .least = options.lr_min};
  require(rates.warm_up < total, "warmup_steps", static_cast<double>(rates.warm_up),
          "below the " + std::to_string(total) + " steps of the training");
  if (const auto kind = find_enum<RateKind>(options.lr_schedule); kind && *kind != RateKind::table) {
    rates.kind = *kind;
    require(rates.kind != RateKind::step || rates.period >= 1, "lr_step_size",
            static_cast<double>(rates.period), "at least 1 with the schedule `step`");
  } else {
    std::error_code ignored;
    std::vector<std::string> names = all_names<RateKind>();
    names.back() = "or a file of steps and their rates";  // table
    if (!std::filesystem::exists(options.lr_schedule, ignored))
      refuse(ErrorKind::usage, "--lr-schedule: " + unknown_name(options.lr_schedule, names));
    rates.kind = RateKind::table;
    rates.table = read_rates(options.lr_schedule);
  }
  return rates;
}

void set_recorded(Setup& setup, const plan::Plan& plan) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageId stage{static_cast<int>(s)};
    const std::string why = why_not_recorded(plan, setup.model, stage);
    if (!why.empty())
      setup.start.warnings.push_back("stage " + std::to_string(s) + " runs without CUDA graphs: " + why);
    for (const WorkerId worker : plan.stages[s].workers) {
      const plan::Program& program = plan.workers[index(worker)].program.program;
      if (why.empty()) setup.recorded[index(worker)][stage] = pass_kinds(program, stage);
    }
  }
}

// With 8 significant bits, half of the last one is 1/512 to 1/256 of the number.
constexpr auto kNoMaster =
    "the weights are bfloat16 without a float32 master: an update below 1/512 of its weight is lost in "
    "rounding; plan with --precision mixed, or profile in float32 with --autocast bfloat16";

constexpr auto kDrains =
    "checkpoints and evaluations drain the asynchronous pipeline, which is part of the training: a run with "
    "another interval ends with other weights";

}  // namespace

Setup check_setup(const plan::Plan& plan, const RunOptions& options, const profile::MachineDevices& machine,
                  const Placement& placement, const std::optional<FoundCheckpoint>& found) {
  check_options(options);
  plan::check_plan(plan);
  Setup setup;
  setup.model = resolve(plan.model);
  setup.placement = placement;
  setup.devices = devices_of_workers(plan, placement, machine);
  check_model(setup.model);
  check_rules(options.rules, setup.model);
  setup.streams = plan.workers.front().program.stream.has_value();
  setup.clocked = plan::require_schedule(plan.schedule.name).rules == plan::RuleSet::clocked;
  check_groups(plan);
  check_state(plan);
  check_all_reduce(plan, options);
  check_tied(plan, setup.streams);
  for (const OptionRow& row : training_options())
    if (!row.found_together.empty() && row.given(&options))
      check_meeting(plan, name_of(row), std::string(row.found_together));
  check_loss_scale(plan, options);
  check_accumulation(plan, options);
  check_served(plan, setup.model, options, placement);
  setup.clock_bound = clock_bound(plan, options, placement);
  check_autocast(plan, options);
  if (options.cuda_graphs) check_cuda_graphs(plan, setup.devices, placement);
  setup.cores = cores_of_workers(setup.devices, placement);
  const std::int64_t samples = set_data(setup, options);
  const double state_ratio = state_ratio_of(plan.training.optimizer, options.optimizer);
  check_prediction(plan, options);
  check_swapped(plan, setup.model, options, placement, state_ratio);
  check_host_memory(least_host_memory(plan, setup.model, setup.devices, bytes_in_memory(setup, samples),
                                      copies_of(plan, state_ratio), placement),
                    profile::available_memory());
  // A stream whose replicas share the micro-batches of a step takes no turns of steps.
  const bool turns = setup.streams && plan.training.micro_batches == 1;
  const auto [round, stage] = turns ? rounds(plan) : std::pair{1, 0};
  setup.round = round;
  setup.length = find_length(plan, options, samples, round, stage);
  if (setup.clocked) check_frames(plan, setup.model, setup.length.epoch);
  setup.rates = find_rates(options, setup.length.total);
  setup.start = find_start(plan, options, setup, found);
  if (std::string other = other_autocast(plan, options); !other.empty())
    setup.start.warnings.push_back(std::move(other));
  if (const std::string layer = regrouped_layer(plan, setup.model); !setup.streams && !layer.empty()) {
    setup.start.warnings.push_back(
        "stages part the layers that read " + layer +
        ", and add its gradients in other groups than one device does: weights differ "
        "from one device's in rounding; pp-plan --cut-at block keeps them together");
  }
  if (plan.training.dtype == DType::bfloat16 && plan.training.precision != plan::Precision::mixed)
    setup.start.warnings.emplace_back(kNoMaster);
  setup.snapshot_every = snapshot_interval(options, setup);
  setup.evaluate_every = find_evaluations(options, setup);
  if (setup.streams && (!options.checkpoint.empty() || options.evaluate_every))
    setup.start.warnings.emplace_back(kDrains);
  setup.recorded.resize(plan.workers.size());
  if (options.cuda_graphs) set_recorded(setup, plan);
  const EpochShape& epoch = setup.length.epoch;
  check_batch_norm(plan, setup.model, epoch.size(epoch.count - 1));
  return setup;
}

}  // namespace pp::run
