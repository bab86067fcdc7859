// What a training tells while it runs, and to whom. Free of Torch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "librun/options/settings.h"
#include "librun/report/report.h"

namespace pp::run {

/// What a run is, before its first step.
struct RunStart {
  std::string plan_hash;
  Settings settings;
  std::uint64_t seed = 0;
  std::int64_t first_step = 0;  ///< done before, where the run is resumed
  std::int64_t steps = 0;       ///< of the whole training
};

/// A step that is complete. Times of its own count from the end of the step before it, of an epoch's first one
/// from its first operation.
struct Progress {
  int epoch = 0;
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  double samples_per_s = 0;  ///< of the step; 0 where it took no time of its own
  double learning_rate = 0;
  int samples = 0;                                     ///< of the step
  Seconds elapsed{};                                   ///< from the start of the run to the end of the step
  double bubble_fraction = 0;                          ///< of the step
  Bytes peak{};                                        ///< of the worker that held most in the step
  std::optional<double> gradient_norm = std::nullopt;  ///< before clipping; only with clip_norm
  std::optional<double> loss_scale = std::nullopt;     ///< for the next step; only where losses are scaled
};

/// Called on the calling thread between steps.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void start(const RunStart& /*start*/) {}
  virtual void information(std::string_view /*text*/) {}
  virtual void step(const Progress& progress) = 0;
  virtual void epoch(const EpochReport& epoch) = 0;
  /// One that is not the end of an epoch, whose report has its own.
  virtual void evaluation(const EvaluationReport& /*evaluation*/) {}
  virtual void warning(std::string_view text) = 0;
  /// Devices have become slower or faster than the plan promised, or are no longer: of each worker's, its work
  /// takes so many times as long (SlowDevices::factors()).
  virtual void speeds(std::span<const double> /*factors*/) {}
};

}  // namespace pp::run
