// How long a profile samples what, from its options. Torch-free.
#pragma once

#include "libprofile/measure/profiler.h"
#include "libprofile/measure/stopping_rule.h"

namespace pp::profile {

/// Of the passes of one micro-batch size.
inline StoppingRule rule_of_passes(const ProfileOptions& options) {
  return {.min_time = options.min_time, .precision = options.precision, .budget = options.budget_per_size};
}

/// Of all updates of one optimizer.
inline Seconds budget_of_optimizer(const ProfileOptions& options) { return options.budget_per_size / 4; }
inline constexpr int kOptimizers = 2;

/// Of updates that are timed together, `measurements` of which share the optimizer's budget.
inline StoppingRule rule_of_updates(const ProfileOptions& options, int measurements) {
  return {.min_time = Seconds(0),
          .precision = options.precision,
          .budget = budget_of_optimizer(options) / measurements,
          .fewest_samples = 5};
}

}  // namespace pp::profile
