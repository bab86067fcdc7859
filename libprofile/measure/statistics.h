// Statistics of measured times as pure functions. Order statistics throughout: times have a floor and a long
// tail, so mean and standard deviation would describe the machine's interruptions and not the work.
#pragma once

#include <span>
#include <vector>

#include "libprofile/core/profile.h"

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

}  // namespace pp::profile
