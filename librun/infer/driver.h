// The calling thread's part of an inference: lets passes begin, collects what they took, tells the observer.
#pragma once

#include <functional>

#include "librun/infer/options.h"
#include "librun/infer/report.h"
#include "librun/worker/job.h"

namespace pp::run {

class InferDriver {
 public:
  /// All must outlive it.
  InferDriver(Job& job, InferObserver& observer, const std::function<bool()>& interrupted);

  /// Until everything is done or `interrupted` says so; then the workers end by themselves. Throws Stopped when
  /// one failed, and what the observer throws.
  void drive();

  bool interrupted() const { return interrupted_early_; }
  /// Samples, passes, times.
  void add_to(InferReport& report) const;

 private:
  bool poll();
  void count(const PassTime& pass);
  void tell();

  Job& job_;
  InferObserver& observer_;
  const std::function<bool()>& interrupted_;
  bool interrupted_early_ = false;
  Step done_ = 0;
  Coordinator::Clock::time_point begin_, end_;  ///< of what is done
  TimeSample latencies_;
  Seconds longest_{};
};

}  // namespace pp::run
