// The calling thread's part of a training: lets steps begin, collects what the workers bring, tells the
// observer.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "librun/drive/checkpoint_interval.h"
#include "librun/drive/drive_loop.h"
#include "librun/report/build.h"
#include "librun/report/progress.h"
#include "librun/worker/job.h"

namespace pp::run {

/// What the driver commands at once: steps without a pause, a snapshot and an evaluation that may follow them.
struct EpochPart {
  int epoch = 0;
  Step first = 0;
  Step end = 0;
};

class Driver final : public DriveLoop {
 public:
  /// All must outlive it.
  Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted);

  /// From where the run starts until its length is reached or `interrupted` says so; then the workers end by
  /// themselves. `interrupted` is asked after every step and while waiting, also for an evaluation, whose
  /// result is then left out. Throws Stopped when a worker failed, pp::Error (run) for a loss that is not a
  /// finite number, and what the observer throws.
  void drive();

  /// Whether a step that is not finite has ended the run (OnNan::stop).
  bool stopped_by_nan() const { return stopped_by_nan_; }
  /// Whether evaluations without a lesser loss have ended it (RunOptions::early_stop).
  bool stopped_early() const;
  /// Of this run.
  Step step_count() const { return done_ - job_.setup.start.position.step; }
  Step skipped_steps() const { return skipped_; }
  /// The last ones (keep_last).
  const std::vector<StepRecord>& steps() const { return steps_; }
  const std::vector<EpochReport>& epochs() const { return epochs_; }
  const std::vector<EvaluationReport>& evaluations() const { return evaluations_; }
  const std::optional<Evaluated>& evaluated() const { return evaluated_; }
  const StepHistory& history() const { return history_; }
  std::vector<SlowDevice> slow_devices() const { return slow_devices_.found(); }
  /// What a checkpoint takes from the training and how far they are apart; none: not chosen by itself.
  std::optional<CheckpointChoice> checkpoint_choice() const;

 private:
  /// The part of an epoch that is done: losses are added from step 0 upwards, wherever the run was resumed.
  struct EpochSum {
    double loss = 0;          ///< times weight
    double weight = 0;        ///< of the steps that were updated: samples, or labels that count (LossWeight)
    double samples_here = 0;  ///< in this run
    Seconds start{};          ///< of this run's part
    Seconds end{};
    Seconds evaluations{};  ///< between its steps
  };

  std::optional<EpochPart> part_from(Step first) const;
  /// Of the last step that is done.
  Position position() const;
  /// Appends the next part to the commands, if there is one and the run is not to end.
  void command();
  void command_snapshot(Step step, bool last);
  /// The first part, until it is done or cut off.
  void run_part();
  bool over() const override { return parts_.empty() || done_ >= parts_.front().end; }
  /// Its first step began then: the time since the step before is not its own.
  void begin_part(Seconds begin);
  /// Steps that may run from the first unfinished one on. Between ranks those of a tenth of a second:
  /// others cannot be asked what they have begun, so an interruption has them finish all of it.
  Step lead() const;
  /// Lets the workers begin what lies up to lead() beyond the steps that are done, in whole rounds; but for
  /// streams only when half of that is used, because between ranks it is a message to all.
  void permit() override;
  void take() override;
  /// Nothing when the step was cut off.
  std::optional<StepResult> await();
  StepRecord record(int epoch, const StepResult& result) const;
  void tell_step(int epoch, const StepResult& result);
  void watch_devices(const StepResult& result);
  void count(const StepRecord& step);
  void finish_epoch(int epoch, const std::optional<EvaluationReport>& evaluation);
  bool evaluates_at(Step step) const;
  /// Whether what follows the step is not known before the evaluation there.
  bool acts_at(Step step) const { return job_.options.acts_on_evaluations() && evaluates_at(step); }
  void command_evaluation(Step step);
  /// The evaluation after the last step that is done; nothing when the run is interrupted.
  std::optional<EvaluationReport> await_evaluation();
  /// Once a run: that its loss is missing or not finite.
  void warn_of_evaluation(const EvaluationReport& report);
  /// Takes note of a result, and takes the snapshot that it asks for.
  void act_on(const EvaluationReport& evaluation);
  /// One that the run before this one did not come to, at the step that was resumed.
  void make_up_evaluation();
  /// What a step that its workers did not update means for the run: whether it goes on.
  bool goes_on_after(const StepResult& result);
  /// What could not be written since the last call.
  void tell_unwritten();
  /// Cuts off what nobody has begun.
  void cut(Commands::Cut what);
  /// Cuts off everything.
  void cut_short() override;
  /// When a checkpoint is due by the clock: after the steps that have begun.
  void take_timed_snapshot();
  /// From one to the next; none: not by the clock, or not known yet. The first one by `auto` comes as soon as
  /// steps without one are known, to see what it costs.
  std::optional<Seconds> checkpoint_interval() const;
  /// Of `auto`: what the last step tells of it.
  void weigh_checkpoints();
  Seconds now() const { return Coordinator::Clock::now() - job_.start; }

  Observer& observer_;
  std::deque<EpochPart> parts_;  ///< commanded and not done
  Step done_;                    ///< steps, since the beginning of the training
  Step granted_ = 0;             ///< steps below it may begin
  Step skipped_ = 0;             ///< of this run's
  int ranges_ = 0;               ///< parts before this one
  EpochSum epoch_;
  int snapshots_ = 0;                   ///< commanded
  std::deque<Step> awaited_snapshots_;  ///< commanded at steps that are not done
  Step snapshot_step_ = -1;             ///< of the last one
  Seconds snapshot_time_{};             ///< of the last one that the clock asked for
  CheckpointCost checkpoint_cost_;
  std::size_t unwritten_ = 0;  ///< failures of checkpoints that were told
  bool stopped_by_nan_ = false, warned_of_evaluation_ = false;
  LossScale loss_scale_;  ///< for the next step that is counted
  Seconds last_end_{};    ///< of the step before, or the beginning of a part
  std::vector<StepRecord> steps_;
  std::vector<EpochReport> epochs_;
  std::vector<EvaluationReport> evaluations_;
  std::optional<Evaluated> evaluated_;
  StepHistory history_;
  SlowDevices slow_devices_;
};

}  // namespace pp::run
