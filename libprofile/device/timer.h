// How long pieces of one device's work take, told apart by marks between them. Interfaces: tests bring a
// clock of their own; a CPU is timed by a clock, and a GPU, whose work is only queued when a call returns,
// by events in its queue. Torch-free.
#pragma once

#include <chrono>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Read by all measuring threads at once.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Since some fixed moment; never goes back.
  virtual Seconds now() const = 0;
};

/// std::chrono::steady_clock: about 25 ns per reading.
class SteadyClock final : public Clock {
 public:
  Seconds now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

/// For one thread.
class Timer {
 public:
  virtual ~Timer() = default;
  /// Ends the piece of work that the calling thread has handed to the device since the last mark.
  virtual void mark() = 0;
  /// Seconds from each mark to the next, one fewer than there were marks since the last call; forgets the
  /// marks. Waits until the device has reached the last one.
  virtual std::vector<double> take() = 0;
};

/// For work that is done when the call returns. A mark costs one reading of the clock, which must outlive it.
class ClockTimer final : public Timer {
 public:
  explicit ClockTimer(const Clock& clock) : clock_(clock) {}
  void mark() override { marks_.push_back(clock_.now()); }
  std::vector<double> take() override;

 private:
  const Clock& clock_;
  std::vector<Seconds> marks_;
};

}  // namespace pp::profile
