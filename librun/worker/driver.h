// The calling thread's part of a run: starts the workers, lets steps begin, collects what they bring, tells the
// observer.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "librun/report/build.h"
#include "librun/worker/threads.h"
#include "librun/worker/worker.h"

namespace pp::run {

/// The workers and their threads; however the driver's work ends, all of them are stopped and joined.
class Crew {
 public:
  /// Throws pp::Error (run) when a thread cannot be started.
  explicit Crew(Job& job, Threads::Start start = Threads::system());
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void join() { threads_.join(); }
  /// The first worker that has not come back after `most`; none when all of them have.
  std::optional<WorkerId> join_within(Seconds most);
  /// To be looked into after join().
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Job& job_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Threads threads_;
};

class Driver {
 public:
  /// All must outlive it.
  Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted);

  /// Until the run's length is reached or `interrupted` says so; then the workers end by themselves.
  /// `interrupted` is asked after every step and while waiting, also for an evaluation, whose result is then
  /// left out. Throws Stopped when a worker failed, pp::Error (run) for a loss that is not a finite number, and
  /// what the observer throws.
  void drive();

  bool interrupted() const { return ended_early_; }
  const std::vector<StepRecord>& steps() const { return steps_; }
  const std::vector<EpochReport>& epochs() const { return epochs_; }

 private:
  /// Appends an epoch to the commands, if there is one and the run is not to end.
  void command(int epoch);
  void run_epoch(int epoch);
  /// Lets the workers begin what lies up to `lead_` beyond the first `done` steps of the epoch, in whole
  /// rounds.
  void grant(Step first, Step done);
  /// Nothing when the step was cut off.
  std::optional<StepResult> await(Step step);
  StepRecord record(int epoch, Step step, const StepResult& result) const;
  void tell_step(Step step, const StepRecord& record, const StepResult& result);
  void finish_epoch(int epoch, Seconds start, std::span<const StepRecord> steps);
  void add_evaluation(EpochReport& report);
  /// Cuts off what nobody has begun when the run is to be interrupted. Returns whether it is.
  bool poll();
  /// Calls the observer: however long it takes, that is no stall.
  template <class Call>
  void tell(Call&& call);
  Seconds now() const { return Coordinator::Clock::now() - job_.start; }

  Job& job_;
  Observer& observer_;
  const std::function<bool()>& interrupted_;
  Step lead_;
  Step end_ = 0;  ///< where an interrupted run ends
  bool ended_early_ = false;
  Seconds last_end_{};  ///< of the step before, or when an epoch began
  std::vector<StepRecord> steps_;
  std::vector<EpochReport> epochs_;
};

}  // namespace pp::run
