// The first step of a profile: at each micro-batch size, what passes run on and how many bytes they take;
// and how long the profile will sample what.
#pragma once

#include <cstdint>
#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/measure/profiled_devices.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {

/// When the passes of one micro-batch size have been timed enough.
inline StoppingRule rule_of_passes(const ProfileOptions& options) {
  return {.min_time = options.min_time, .precision = options.precision, .budget = options.budget_per_size};
}

/// Time for all updates of one optimizer.
inline Seconds budget_of_optimizer(const ProfileOptions& options) { return options.budget_per_size / 4; }
inline constexpr std::array kMeasuredOptimizers{OptimizerName::sgd, OptimizerName::adamw};

/// When updates have been timed enough that are timed together, `measurements` of which share the optimizer's
/// budget.
inline StoppingRule rule_of_updates(const ProfileOptions& options, int measurements) {
  return {.min_time = Seconds(0),
          .precision = options.precision,
          .budget = budget_of_optimizer(options) / measurements,
          .fewest_samples = 5};
}

struct MeasuredSize {
  std::int64_t micro_batch_size = 1;
  bool out_of_memory = false;
  PassBytes bytes;      ///< of the first device
  Seconds pass_time{};  ///< of the byte passes: a first guess
};

struct MeasuredBytes {
  std::vector<MeasuredSize> sizes = {};  ///< as the runners count them; at the end some may be missing
  std::vector<KernelChoice> kernels;
};

/// The sizes that are asked for, or may be.
std::vector<std::int64_t> sizes_to_measure(const ProfileOptions& options);

/// Chooses the kernels of each size, but for those that are `known`. A size that does not fit is marked, and so
/// are all above it. Throws model::OutOfMemory when none fits, pp::Error (run) when the model cannot run.
MeasuredBytes measure_bytes(ProfiledDevices& devices, const Subject& subject, std::vector<KernelChoice> known);

}  // namespace pp::profile
