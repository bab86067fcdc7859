// When a series of samples is long enough. Pure: the caller measures and keeps the clock.
#pragma once

#include <span>

#include "libprofile/core/units.h"

namespace pp::profile {

struct StoppingRule {
  /// Passes of each size that are run and dropped before the first sample: caches, kernels chosen at the first
  /// call and fresh memory make them slow.
  int warm_up_passes = 3;
  /// Below this many samples the interval is not looked at.
  int min_samples = 10;
  int max_samples = 400;
  /// Passes that follow each other feel the same neighbours: a kind of pass is precise by the medians of its
  /// visits, of which there are so many at least, in so much time at least.
  int min_visits = 8;
  Seconds min_time{1.0};
  /// Half-width of the 95 % interval of the median, as a share of it, that is narrow enough.
  double precision = 0.02;
  /// Time after which sampling stops with what there is, but never below kFewestSamples.
  Seconds budget{12.0};
};

/// What even a spent budget does not save (rounds.h asks for more): with fewer, median and spread mean nothing.
inline constexpr int kFewestSamples = 5;

enum class Verdict { more, precise, budget_spent, enough };

/// `samples` in seconds, warm-up excluded; `spent` on them so far.
Verdict decide(const StoppingRule& rule, std::span<const double> samples, Seconds spent);

}  // namespace pp::profile
