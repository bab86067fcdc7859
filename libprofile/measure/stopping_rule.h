// When enough has been sampled. Pure: the caller measures and keeps the clock.
#pragma once

#include <span>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::profile {

struct StoppingRule {
  /// Passes that are run and dropped before the first sample: caches, kernels chosen at the first call and
  /// fresh memory make them slow.
  int warm_up_passes = 3;
  /// Passes that follow each other feel the same neighbours, so that precision is judged by the medians of
  /// visits: at least `min_visits` of them, over at least `min_time`.
  int min_visits = 8;
  Seconds min_time{1.0};
  /// Half-width of the 95 % interval of the median, as a share of it, that is narrow enough.
  double precision = 0.02;
  /// Time after which sampling stops with what there is, ...
  Seconds budget{12.0};
  /// ... but never with fewer samples of anything. A long pass is a visit of its own, so these are as many
  /// visits: a neighbour that disturbs three of eight does not move the median.
  int fewest_samples = 8;
  /// Nor with fewer visits where a visit has one sample of a kind that counts by itself (a step's first pass).
  int fewest_first = 5;
};

/// Samples of one thing, in seconds, visit by visit.
struct Series {
  bool with_first = false;  ///< each visit has one sample of another kind, too
  std::vector<double> samples = {}, visit_medians = {};
  Seconds spent{};

  /// `duration` of the visit as a whole. At least one sample.
  void add(std::span<const double> seconds, Seconds duration);
};

/// How many samples, and visits with a first one, what even a spent budget does not save.
int missing_samples(const StoppingRule& rule, const Series& series);
int missing_firsts(const StoppingRule& rule, const Series& series);
bool lacks_samples(const StoppingRule& rule, const Series& series);

/// Whether series that take turns are all precise, or their budget is `spent` and none lacks samples.
bool is_enough(const StoppingRule& rule, std::span<const Series> series, Seconds spent);

}  // namespace pp::profile
