// What a run measured, beside what the plan predicted (document pp.report).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/core/fields.h"
#include "libprofile/core/units.h"
#include "librun/options/settings.h"
#include "librun/report/deviation.h"
#include "librun/report/last_steps.h"
#include "librun/report/record.h"
#include "librun/report/slow_devices.h"
#include "librun/stage/pass_kind.h"

namespace pp::run {

struct EpochReport {
  int epoch = 0;
  double train_loss = 0;  ///< mean over the samples, or the labels that count; NaN: no step was updated
  std::optional<double> test_loss;  ///< none: not evaluated, or no label counts; may be not finite
  std::optional<double> test_accuracy;
  double samples_per_s = 0;
  std::int64_t last_step = 0;  ///< of the training, from 1
  Seconds elapsed{};           ///< from the start of the run to the end of its last step
  Seconds evaluation{};        ///< from there to the result on the test set; 0: none
  bool operator==(const EpochReport&) const = default;
};

/// The model on the test set, between two steps.
struct EvaluationReport {
  int epoch = 0;                         ///< that of the last step
  std::int64_t step = 0;                 ///< as EpochReport::last_step
  std::optional<double> test_loss = {};  ///< as EpochReport::test_loss
  std::optional<double> test_accuracy = {};
  Seconds elapsed{};  ///< from the start of the run to the end of that step
  Seconds time{};     ///< from there to the result
  bool operator==(const EvaluationReport&) const = default;
};

/// The best evaluation of a training that acts on them.
struct BestReport {
  std::int64_t step = 0;
  double test_loss = 0;
  std::int64_t evaluations_since = 0;
  std::string checkpoint;  ///< that is kept; empty: none is
  bool operator==(const BestReport&) const = default;
};

/// Stages copied between host and device, one way, in all steps.
struct SwapsReport {
  std::int64_t count = 0;
  Bytes bytes;
  Seconds time{};  ///< that copying took
  /// Nothing where nothing was copied.
  std::optional<BytesPerSecond> bandwidth() const;
  bool operator==(const SwapsReport&) const = default;
};

struct WorkerReport {
  WorkerId id{};
  Seconds busy{};  ///< per step, median over the measured steps
  double bubble_fraction = 0;
  Bytes peak;                                            ///< measured peak of this worker
  Bytes weights, gradients, optimizer, versions, saved;  ///< parts that are counted exactly
  int peak_in_flight = 0;
  int peak_versions = 1;
  Bytes sent_per_step;
  std::optional<SwapsReport> swaps_in = {}, swaps_out = {};  ///< none: weights stay on the device
  std::optional<GraphCount> graphs = {};                     ///< none: no pass was recorded
  bool operator==(const WorkerReport&) const = default;
};

/// Time by kind of operation and stage.
struct OpTime {
  plan::OpKind kind{};
  StageId stage{};
  std::int64_t count = 0;
  Seconds predicted{};  ///< 0 where the plan says nothing
  Seconds median{};     ///< measured
  /// The same on each worker of a stage that has several; 0: it has done none.
  std::vector<Seconds> replicas = {};
  bool operator==(const OpTime&) const = default;
};

/// A quantity that the plan promised, and what came out.
struct Comparison {
  std::string name;  ///< `step_s`, `samples_per_s`, `bubble_fraction`, `worker_0_peak_bytes`, ...
  double predicted = 0;
  double measured = 0;
  double ratio = 0;  ///< measured/predicted; 0 when that is no number
  bool operator==(const Comparison&) const = default;
};

/// Of `--every auto`, at the end of the run.
struct CheckpointChoice {
  Seconds cost{};      ///< what one takes from the training
  Seconds interval{};  ///< to the next one
  bool operator==(const CheckpointChoice&) const = default;
};

/// What the checkpoints of a run have cost.
struct CheckpointsReport {
  std::int64_t written = 0;
  Bytes size;                              ///< of the last one
  Seconds pause{};                         ///< median time that training stood still for the copy of its state
  Seconds write{};                         ///< median time of writing it, meanwhile training goes on
  std::optional<CheckpointChoice> choice;  ///< none: their interval was given
  bool operator==(const CheckpointsReport&) const = default;
};

/// How far apart the replicas around a parameter server were, and what they brought it and took from it.
struct ReplicasReport {
  double mean_staleness = 0;  ///< updates of other replicas while one computed, over all updates
  std::int64_t largest_staleness = 0;
  std::int64_t largest_lead = 0;  ///< mini-batches that one was ahead of the slowest when it began with another
  Bytes pushed_per_step, fetched_per_step;  ///< by all of them, by memory or by messages
  bool operator==(const ReplicasReport&) const = default;
};

/// A stream of frames (PARTIME), measured over its last ones.
struct FramesReport {
  Seconds period{};        ///< from one frame to the next
  Seconds latency{};       ///< of a frame, from the first stage's forward to the end of the last one's; median
  std::int64_t delay = 0;  ///< frames that have entered behind it when its output is there; the largest
  bool operator==(const FramesReport&) const = default;
};

struct ResumedFrom {
  std::string checkpoint;  ///< its folder
  std::int64_t step = 0;
  bool operator==(const ResumedFrom&) const = default;
};

/// What was lost before, and what it leaves to the next start (pp-run train or launch with --keep-going).
struct LostAttempt {
  std::string how;                         ///< `signal 9 (Killed)`, `exit code 1`; of one that was stopped, why
  std::int64_t first_step = 0;             ///< updates that it began with
  std::int64_t steps_done = 0;             ///< updates when it was lost, since the beginning of the training
  std::optional<std::int64_t> checkpoint;  ///< of the newest then; none: the next one begins anew
  Seconds time{};                          ///< from its start to its end
  std::string plan = {};                   ///< in a line, with its hash
  std::string hosts = {};                  ///< that it ran on; empty: it was not launched
  std::optional<Seconds> to_next = std::nullopt;  ///< from its end to the next start
  bool operator==(const LostAttempt&) const = default;
};

struct RunReport {
  Context context;
  plan::Plan plan;  ///< checked in full
  std::string plan_hash;
  Settings settings;
  std::string exit_reason;  ///< `completed`, `stopped_early`, `interrupted`, `not_finite`, `not_written`
  std::optional<ResumedFrom> resumed;
  std::vector<LostAttempt> lost_attempts;  ///< before this one, in order
  std::vector<SlowDevice> slow_devices;    ///< that took longer than promised for a while
  std::optional<Deviation> deviation;      ///< none: of an older report
  std::optional<CheckpointsReport> checkpoints;
  std::optional<ReplicasReport> replicas;  ///< none: they do not train apart
  std::optional<FramesReport> frames;      ///< none: no stream of frames
  std::int64_t steps = 0;                  ///< of this run
  std::int64_t skipped_steps = 0;  ///< of these: losses or gradients were not finite, nothing was updated
  std::uint64_t seed = 0;
  Seconds step{};  ///< median over the steps after warm-up
  double samples_per_s = 0;
  double bubble_fraction = 0;
  std::vector<double> step_losses;  ///< of the last steps (keep_last), one each; NaN: not finite
  std::vector<EpochReport> epochs;
  std::vector<EvaluationReport> evaluations;  ///< those of evaluate_every
  std::optional<BestReport> best;             ///< none: nothing is made of evaluations
  std::vector<WorkerReport> workers;
  std::vector<OpTime> op_times;
  std::vector<InstructionReport> instructions;  ///< of a step; empty: of an older report
  std::vector<Comparison> comparisons;
  StepHistory history;
  LastSteps last_steps;
  std::string trace;  ///< Chrome trace JSON when asked for; not part of the document
};

/// The keys that are losses: null where they are not finite.
extern const ValueType kLoss;
Json loss_json(double loss);
Keys report_keys();
Json to_json(const RunReport& report);
RunReport report_from_json(const Json& json);
/// They pass between the starts of pp-run launch, too.
Json to_json(const LostAttempt& lost);
/// Throws pp::Error (data).
LostAttempt read_lost_attempt(ObjectReader& reader);

}  // namespace pp::run
