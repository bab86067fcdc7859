// The calling thread's part of a run: starts the workers, lets steps begin, collects what they bring, tells the
// observer.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "librun/report/build.h"
#include "librun/worker/worker.h"

namespace pp::run {

/// The workers and their threads; however the driver's work ends, all of them are stopped and joined.
class Crew {
 public:
  explicit Crew(Job& job);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void join();
  /// To be looked into after join().
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Job& job_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

class Driver {
 public:
  /// All must outlive it.
  Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted);

  /// Until the run's length is reached or `interrupted` says so; then the gate is closed and the workers end by
  /// themselves. Throws Stopped when a worker failed, pp::Error (run) for a loss that is not a finite number,
  /// and what the observer throws.
  void drive();

  bool interrupted() const { return closed_; }
  const std::vector<UnitRecord>& units() const { return units_; }
  const std::vector<EpochReport>& epochs() const { return epochs_; }

 private:
  void run_epoch(int epoch);
  /// Lets the workers begin what lies up to `lead_` beyond the first `done` units of the epoch, in whole
  /// rounds.
  void grant(Unit first, Unit count, Unit done);
  UnitRecord await(int epoch, Unit unit);
  void finish_epoch(int epoch, Seconds start, std::span<const UnitRecord> units);
  Seconds now() const { return Coordinator::Clock::now() - job_.start; }

  Job& job_;
  Observer& observer_;
  const std::function<bool()>& interrupted_;
  Unit lead_;
  Unit granted_ = 0;  ///< of the current epoch
  bool closed_ = false;
  std::vector<UnitRecord> units_;
  std::vector<EpochReport> epochs_;
};

}  // namespace pp::run
