// The calling thread's part of an inference: lets passes begin, collects what they took, tells the observer.
#pragma once

#include <functional>

#include "librun/drive/drive_loop.h"
#include "librun/infer/options.h"
#include "librun/infer/report.h"
#include "librun/worker/job.h"

namespace pp::run {

class InferDriver final : public DriveLoop {
 public:
  /// All must outlive it.
  InferDriver(Job& job, InferObserver& observer, const std::function<bool()>& interrupted);

  /// Until everything is done or `interrupted` says so; then the workers end by themselves. Throws Stopped when
  /// one failed, and what the observer throws.
  void drive();

  /// Samples, passes, times.
  void add_to(InferReport& report) const;

 private:
  bool over() const override { return done_ >= allowed_ || interrupted(); }
  void permit() override;
  void take() override;
  void cut_short() override {}  // drive() takes back what is left, however it ended
  void count(const PassTime& pass);
  void tell_progress();

  InferObserver& observer_;
  Step done_ = 0, allowed_ = 0;                 ///< passes; those that may begin
  Coordinator::Clock::time_point begin_, end_;  ///< of what is done
  TimeSample latencies_;
  Seconds longest_{};
};

}  // namespace pp::run
