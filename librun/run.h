// Executing a plan: workers, transports, data, report behind one call with plain values. Apps include this
// header; it is free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "libplan/plan.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/error.h"
#include "librun/execution.h"
#include "librun/report/report.h"
#include "librun/stage/weight_rules.h"
#include "librun/transport/peers.h"

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

struct RunOptions : ExecutionOptions {
  AllReduce all_reduce = AllReduce::deterministic;
  double test_share = 0;      ///< of the samples, from their end, for tests where there are no test files
  std::optional<int> epochs;  ///< one of epochs and steps is given
  std::optional<std::int64_t> steps;
  double learning_rate = 0.01;
  /// How the rate goes (worker/learning_rate.h): `constant`, `step`, `cosine`, or a file of steps and rates.
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
  double weight_decay = 0.0;  ///< adamw: taken off the weights; the others: added to the gradient
  WeightRules rules;          ///< weights without decay, and with a learning rate of their own
  /// Settings that only some optimizers have (worker/optimizer.h), and are given to no other.
  std::optional<double> momentum, beta1, beta2, alpha, epsilon, lr_decay;
  bool nesterov = false;  ///< sgd
  /// Decided by all workers together before any of them updates; synchronous schedules only. Unset: a loss that
  /// is not finite, seen when the step is over, is the run's failure.
  std::optional<OnNan> on_nan;
  /// Losses are multiplied by it in backwards, gradients divided by it before the update. Unset: 1; under
  /// autocast to float16 a dynamic one (worker/loss_scale.h), which skips steps that are not finite without
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
  bool evaluate = true;    ///< after each epoch, when there is test data and the loss is cross_entropy or mse
  /// Safetensors, keys are parameter names: a file, a folder or an index (checkpoint/weight_output.h); empty:
  /// none.
  std::filesystem::path save_weights;
  Bytes shard_bytes{5'000'000'000};  ///< of one file, where there are several
  std::filesystem::path checkpoint;  ///< folder for checkpoints; empty: none
  /// From one checkpoint to the next; neither: an epoch. The end of the run has one in any case.
  std::optional<std::int64_t> checkpoint_steps;
  std::optional<Seconds> checkpoint_time;
  int checkpoints_kept = 3;
  std::filesystem::path resume;  ///< a folder of checkpoints, or one of them; empty: from the beginning
  /// CUDA: the host waits for the device after every operation, as the profiler does. The bits are the same.
  bool wait_each_operation = false;
  /// CUDA: passes are recorded as CUDA graphs in the second step and replayed from then on
  /// (stage/recorded_pass.h), but for stages that draw random numbers. The bits are the same.
  bool cuda_graphs = false;
  bool trace = false;  ///< make a Chrome trace of the last steps for the report
};

/// What a run is, before its first step.
struct RunStart {
  std::string plan_hash;
  Settings settings;
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;  ///< done before, where the run is resumed
  std::int64_t steps = 0;       ///< of the whole training
};

/// A step that is complete. Times of its own count from the end of the step before it, of an epoch's first one
/// from its first operation.
struct Progress {
  int epoch = 0;
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  double samples_per_s = 0;  ///< of the step; 0 where it took no time of its own
  double learning_rate = 0;
  int samples = 0;                                     ///< of the step
  Seconds elapsed{};                                   ///< from the start of the run to the end of the step
  double bubble_fraction = 0;                          ///< of the step
  Bytes peak{};                                        ///< of the worker that held most in the step
  std::optional<double> gradient_norm = std::nullopt;  ///< before clipping; only with clip_norm
  std::optional<double> loss_scale = std::nullopt;     ///< for the next step; only where losses are scaled
};

/// Called on the calling thread between steps.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void start(const RunStart& /*start*/) {}
  virtual void information(std::string_view /*text*/) {}
  virtual void step(const Progress& progress) = 0;
  virtual void epoch(const EpochReport& epoch) = 0;
  virtual void warning(std::string_view text) = 0;
};

/// Everything that can be found before work starts: the plan (check_plan), its devices, the data against the
/// model, the last mini-batch, J of asynchronous streams. Throws pp::Error (data, usage, device).
void check(const plan::Plan& plan, const RunOptions& options);

/// Trains. `interrupted` is polled all the time: true ends the run when the steps that a worker has begun are
/// finished, and leaves an evaluation (RunReport::exit_reason). A failure of one worker stops all and is
/// rethrown as pp::Error (run) that names worker, stage, operation and micro-batch; no file is left
/// half-written. A worker that then does not end within the stall timeout, at most five seconds, is left
/// behind, which the message says.
RunReport run(
    const plan::Plan& plan, const RunOptions& options, Observer& observer,
    const std::function<bool()>& interrupted = [] { return false; });

/// A run on several ranks cannot begin: all of them know.
class NotBegun : public Error {
 public:
  using Error::Error;
};
/// The run has failed, or cannot begin, and rank 0 says why.
class SaidElsewhere : public Error {
 public:
  SaidElsewhere(ErrorKind kind, const std::string& what, bool begun = true)
      : Error(kind, what), begun_(begun) {}
  bool begun() const { return begun_; }

 private:
  bool begun_;
};

/// The same by several processes, which all call it, each for its workers (transport/placement.h). First they
/// find out whether they are of one mind: plan, options, data, version. Rank 0 writes files, tells its observer
/// and returns the report; of the others' reports only the exit reason means something. A failure anywhere ends
/// all of them, each with an exception: SaidElsewhere but for rank 0, which names the rank where it happened.
RunReport run_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Observer& observer,
                       const std::function<bool()>& interrupted);
/// In its place, for a rank that does not come so far: tells the others, who then throw, too.
[[noreturn]] void refuse_together(Peers& peers, const Error& why);

/// How many failed runs have left a worker behind. Its thread still uses the run's memory, which is kept; the
/// process should end by _exit, which waits for nobody.
int runs_left_behind();

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
