// What a training is told, and what training and inference are told alike: all of it by the command line,
// nothing by the plan. An option is a field here, with its default, and a row in the .cpp file, which says all
// that tools, checks and checkpoints do with it. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "libplan/plan/plan.h"
#include "libprofile/core/enum_names.h"
#include "librun/options/settings.h"
#include "librun/options/weight_rules.h"

namespace pp {
template <class Owner>
struct OptionOf;
}

namespace pp::run {

struct ExecutionOptions {
  std::string data;           ///< `synthetic`, or a folder or file that data/formats.h knows
  std::string data_format;    ///< where the names of the files leave it open
  std::string token_type;     ///< uint8, uint16 or uint32: the data are tokens
  std::string target_column;  ///< of a CSV file; empty: the last one
  /// Samples of synthetic data; in training per epoch.
  int synthetic_samples = 1024;
  /// Synthetic data: turns of their rule per sample, so that they are a stream that a trainer must follow;
  /// neighbours are alike then.
  double synthetic_drift = 0;
  /// Multiplies floating inputs of files; default: integers by 1/(maximum of their type).
  std::optional<double> scale;
  /// Forwards run under LibTorch's autocast to this type; nothing: as the plan says.
  std::optional<Autocast> autocast;
  std::uint64_t seed = 1;
  std::filesystem::path initial_weights;  ///< safetensors, or a checkpoint's folder; empty: drawn from the seed
  bool ignore_unknown_weights = false;    ///< initial weights that the model does not have
  /// Drawn weights are meant, also of a model that was imported with its own and of frozen parameters.
  bool random_weights = false;
  std::optional<Bytes> memory_limit;  ///< of each worker's tensors; a worker that needs more ends the run
  Seconds stall_timeout{60};          ///< a worker that waits this long is reported as stalled
  /// Tests only: called inside the worker before this operation of this step (-1: of an evaluation or an
  /// inference); may throw.
  std::function<void(std::int64_t step, WorkerId worker, const plan::Op& op)> before_op;
};

/// The rows of these (libprofile/core/options.h).
std::span<const OptionOf<ExecutionOptions>> execution_options();

}  // namespace pp::run

namespace pp::run {

/// What becomes of a step whose loss or gradient is not a finite number.
enum class OnNan {
  stop,  ///< the run ends with the weights of the step before
  skip   ///< the step changes nothing
};

/// How gradients of replicas on several ranks are added.
enum class AllReduce {
  deterministic,  ///< in the order of the replicas: the bits of one process
  fast            ///< as the message-passing library or NCCL does it
};

inline constexpr std::int64_t kDefaultStaleness = 1;
inline constexpr std::int64_t kMostSteps = 1'000'000'000;

struct RunOptions : ExecutionOptions {
  AllReduce all_reduce = AllReduce::deterministic;
  double test_share = 0;      ///< of the samples, from their end, for tests where there are no test files
  std::optional<int> epochs;  ///< one of epochs and steps is given
  std::optional<std::int64_t> steps;
  double learning_rate = 0.01;
  /// How the rate goes (options/learning_rate.h): `constant`, `step`, `cosine`, or a file of steps and rates.
  std::string lr_schedule = "constant";
  std::int64_t warmup_steps = 0;  ///< in which the rate rises
  std::int64_t lr_step_size = 0;  ///< `step`: steps between its factors
  double lr_factor = 0.1;         ///< `step`
  double lr_min = 0;              ///< `cosine`: at the end of the training
  /// Mini-batches of the plan that make one update, on the mean over all their samples; the last update of an
  /// epoch takes those that are left. A step is an update, also of `steps` and the learning rate. Synchronous
  /// schedules only.
  int accumulate = 1;
  /// Largest norm of the gradient of all parameters together; a larger one is scaled down to it. Synchronous
  /// schedules only.
  std::optional<double> clip_norm;
  double weight_decay = 0.0;    ///< adamw: taken off the weights; the others: added to the gradient
  WeightRules rules;            ///< weights without decay, and with a learning rate of their own
  OptimizerSettings optimizer;  ///< those that the plan's optimizer has
  /// Decided by all workers together before any of them updates; synchronous schedules only. Unset: a loss that
  /// is not finite, seen when the step is over, is the run's failure.
  std::optional<OnNan> on_nan;
  /// Losses are multiplied by it in backwards, gradients divided by it before the update. Unset: 1; under
  /// autocast to float16 a dynamic one (options/position.h), which skips steps that are not finite without
  /// being asked by on_nan. Synchronous schedules only.
  std::optional<double> loss_scale;
  bool scales_dynamically() const { return autocast == Autocast::float16 && !loss_scale; }
  bool scales_losses() const { return loss_scale || scales_dynamically(); }
  /// Replicas around a parameter server (server/). downpour: mini-batches of a replica from one push, or fetch,
  /// to the next; unset: 1.
  std::optional<int> push_every, fetch_every;
  /// ssp: mini-batches that a replica may be ahead of the slowest; unset: kDefaultStaleness.
  std::optional<std::int64_t> staleness;
  /// The seed of a fixed order in which replicas come to the server, for runs that can be repeated bit by bit;
  /// unset: as they come.
  std::optional<std::uint64_t> interleave;
  bool shuffle = true;     ///< a permutation keyed by (seed, epoch)
  bool drop_last = false;  ///< leave out a last partial mini-batch that has fewer samples than micro-batches
  bool evaluate = true;    ///< when there is test data
  /// Steps from one evaluation to the next, and one at the end; unset: after each epoch.
  std::optional<std::int64_t> evaluate_every;
  /// The checkpoint of the least test loss is kept beside the newest ones, and `save_weights` gets its weights.
  bool keep_best = false;
  std::optional<std::int64_t> early_stop;  ///< ends after so many evaluations in a row without a lesser loss
  bool acts_on_evaluations() const { return keep_best || early_stop; }
  /// Safetensors, keys are parameter names: a file, a folder or an index (checkpoint/weight_output.h); empty:
  /// none.
  std::filesystem::path save_weights;
  Bytes shard_bytes{5'000'000'000};  ///< of one file, where there are several
  std::filesystem::path checkpoint;  ///< folder for checkpoints; empty: none
  /// From one checkpoint to the next; none of the three: an epoch. The end of the run has one in any case.
  std::optional<std::int64_t> checkpoint_steps;
  std::optional<Seconds> checkpoint_time;
  bool checkpoint_auto = false;  ///< as checkpoints and failures cost least (drive/checkpoint_interval.h)
  std::optional<Seconds> between_failures;  ///< of all machines together, in the mean; with checkpoint_auto
  int checkpoints_kept = 3;
  std::filesystem::path resume;  ///< a folder of checkpoints, or one of them; empty: from the beginning
  /// CUDA: the host waits for the device after every operation, as the profiler does. The bits are the same.
  bool wait_each_operation = false;
  /// CUDA: passes are recorded as CUDA graphs in the second step and replayed from then on
  /// (stage/recorded_pass.h), but for stages that draw random numbers. The bits are the same.
  bool cuda_graphs = false;
  bool trace = false;  ///< make a Chrome trace of the last steps for the report
};

/// The rows of a training beside execution_options(), and of those the ones that say where weights go.
std::span<const OptionOf<RunOptions>> training_options();
std::span<const OptionOf<RunOptions>> weight_output_options();

/// Whether a training that goes on from a checkpoint is warned of another value of this setting.
bool is_compared(std::string_view setting);

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::OnNan> {
  static constexpr std::array table{std::pair{run::OnNan::stop, "stop"sv},
                                    std::pair{run::OnNan::skip, "skip"sv}};
};
template <>
struct EnumNames<run::AllReduce> {
  static constexpr std::array table{std::pair{run::AllReduce::deterministic, "deterministic"sv},
                                    std::pair{run::AllReduce::fast, "fast"sv}};
};
}  // namespace pp
