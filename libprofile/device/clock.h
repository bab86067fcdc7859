// Where the profiler reads the time. An interface, so that tests bring a clock of their own.
#pragma once

#include <chrono>

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

}  // namespace pp::profile
