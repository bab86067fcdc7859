// Statistics of measured times as pure functions, and when enough has been sampled. Order statistics
// throughout: times have a floor and a long tail, so mean and standard deviation would describe the
// machine's interruptions and not the work. The caller measures and keeps the clock.
#pragma once

#include <span>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace pp::profile {

/// Linear between neighbours: position share*(n-1) of the sorted values. Throws pp::Error (internal) for no
/// value.
double quantile(std::span<const double> sorted, double share);

struct Interval {
  double low = 0;
  double high = 0;
  bool operator==(const Interval&) const = default;
};

/// Interval that holds the true median with at least 95 % probability, whatever the distribution: the k-th
/// smallest and the k-th largest value with the largest k such that P(Binomial(n, 1/2) < k) <= 0.025; exact to
/// n = 60, above that k = floor((n - 1.96 sqrt(n)) / 2). Infinite below 6 values: no two of them are enough.
Interval median_interval(std::span<const double> sorted);

/// Half the width of median_interval() as a share of the median; infinite below 6 values, 0 when all are 0.
double relative_half_width(std::span<const double> values);

/// How many values lie above median + 5 * 1.4826 * (median absolute deviation), the deviation taken as at least
/// 1 % of the median: for normal noise about one in four million.
int count_outliers(std::span<const double> values);

/// Median, 16th and 84th percentile of seconds. All 0 without a sample.
TimeStat summarise(std::span<const double> seconds);

/// The time of work that follows other work, the noise of both taken as independent: percentiles do not add,
/// the squares of their distances from the median do.
TimeStat together(const TimeStat& first, const TimeStat& second);

/// Half the distance of `low` and `high` as a share of the median: one standard deviation if the noise were
/// normal.
double relative_spread(const TimeStat& time);

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
