// The calling thread beside its workers: lets work begin, takes what they bring, and may be interrupted. What
// the work is, a training with its evaluations or an inference, the driver says that is made of it.
#pragma once

#include <functional>
#include <utility>

#include "librun/threads/coordinator.h"
#include "librun/worker/job.h"

namespace pp::run {

class DriveLoop {
 public:
  DriveLoop(const DriveLoop&) = delete;
  DriveLoop& operator=(const DriveLoop&) = delete;

  /// Whether the run ends before its end.
  bool interrupted() const { return ended_early_; }

 protected:
  /// Both must outlive it. `interrupted` is asked after every result and while one is waited for.
  DriveLoop(Job& job, const std::function<bool()>& interrupted) : job_(job), interrupted_(interrupted) {}
  virtual ~DriveLoop() = default;

  /// Permits and takes until it is over. Throws Stopped when a worker failed, and what the observer throws.
  void run();
  /// Whether the run is interrupted; the first time it is cut short.
  bool poll();
  void end_early() { ended_early_ = true; }
  /// Calls the observer: however long it takes, that is no stall.
  template <class Call>
  void tell(Call&& call) {
    const Phase phase(job_.coordinator);
    std::forward<Call>(call)();
  }

  Job& job_;

 private:
  virtual bool over() const = 0;
  /// Grants what may begin now.
  virtual void permit() = 0;
  /// Waits for what comes next and counts it; returns without when poll() ends the wait.
  virtual void take() = 0;
  virtual void cut_short() = 0;

  const std::function<bool()>& interrupted_;
  bool ended_early_ = false;
};

}  // namespace pp::run
