// Tells a slow run from one that stands still, from a thread of its own: it sees workers that compute, wait, or
// never come back.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Stops the run with pp::Error (run) that names every worker's operation when none has begun or ended for
/// `timeout` and nobody is in a phase. Ends with the object.
class Watchdog {
 public:
  /// `run` must outlive it.
  Watchdog(Coordinator& run, Seconds timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();
  std::string report() const;

  Coordinator& run_;
  Seconds timeout_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  Threads thread_;
};

}  // namespace pp::run
