// Clocks and observers for tests of the profiler.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "libprofile/device/timer.h"
#include "libprofile/measure/profiler.h"

namespace pp::profile::test {

/// Each reading is one millisecond after the one before, whoever reads: time counts readings.
class CountingClock final : public Clock {
 public:
  Seconds now() const override { return Seconds(1e-3 * static_cast<double>(readings_++)); }

 private:
  mutable std::atomic<std::int64_t> readings_{0};
};

/// As CountingClock, but every third step is ten times as long.
class UnsteadyClock final : public Clock {
 public:
  Seconds now() const override {
    const std::int64_t readings = readings_++;
    const std::int64_t long_steps = readings / 3;
    return Seconds(1e-3 * static_cast<double>(readings + long_steps * 9));
  }

 private:
  mutable std::atomic<std::int64_t> readings_{0};
};

struct RecordingObserver final : Observer {
  struct Step {
    std::string phase;
    double done;
    Seconds remaining;
  };
  std::vector<Step> steps;
  std::vector<std::string> warnings;

  void progress(std::string_view phase, double done, Seconds remaining) override {
    steps.push_back({std::string(phase), done, remaining});
  }
  void warning(std::string_view text) override { warnings.emplace_back(text); }
};

}  // namespace pp::profile::test
