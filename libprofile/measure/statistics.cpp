#include "libprofile/measure/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "libprofile/core/error.h"

namespace pp::profile {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> sorted_copy(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

/// The largest k with P(Binomial(n, 1/2) < k) <= 0.025; 0 when there is none.
std::size_t interval_rank(std::size_t n) {
  const double count = static_cast<double>(n);
  if (n > 60) return static_cast<std::size_t>((count - 1.96 * std::sqrt(count)) / 2);
  std::size_t rank = 0;
  double probability = std::pow(0.5, count);  // of exactly `rank` successes
  for (double below = probability; below <= 0.025; below += probability) {
    ++rank;
    probability *= (count - static_cast<double>(rank) + 1) / static_cast<double>(rank);
  }
  return rank;
}

}  // namespace

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) throw Error(ErrorKind::internal, "quantile: no values; sample at least once");
  const double position = share * static_cast<double>(sorted.size() - 1);
  const std::size_t below = static_cast<std::size_t>(position);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

Interval median_interval(std::span<const double> sorted) {
  const std::size_t rank = interval_rank(sorted.size());
  if (rank == 0) return {-kInfinity, kInfinity};
  return {sorted[rank - 1], sorted[sorted.size() - rank]};
}

double relative_half_width(std::span<const double> values) {
  const std::vector<double> sorted = sorted_copy(values);
  const Interval interval = median_interval(sorted);
  if (std::isinf(interval.high)) return kInfinity;
  const double width = interval.high - interval.low;
  return width == 0 ? 0.0 : width / 2 / quantile(sorted, 0.5);
}

int count_outliers(std::span<const double> values) {
  if (values.empty()) return 0;
  const double median = quantile(sorted_copy(values), 0.5);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - median));
  std::sort(deviations.begin(), deviations.end());
  const double deviation = std::max(1.4826 * quantile(deviations, 0.5), 0.01 * median);
  return static_cast<int>(std::count_if(values.begin(), values.end(),
                                        [&](double value) { return value > median + 5 * deviation; }));
}

TimeStat summarise(std::span<const double> seconds) {
  if (seconds.empty()) return {};
  const std::vector<double> sorted = sorted_copy(seconds);
  return {.median = Seconds(quantile(sorted, 0.5)),
          .low = Seconds(quantile(sorted, 0.16)),
          .high = Seconds(quantile(sorted, 0.84)),
          .samples = static_cast<std::int64_t>(sorted.size())};
}

TimeStat together(const TimeStat& first, const TimeStat& second) {
  const auto distance = [&](Seconds TimeStat::*end) {
    return Seconds(std::hypot((first.*end - first.median).count(), (second.*end - second.median).count()));
  };
  const Seconds median = first.median + second.median;
  return {.median = median,
          .low = median - distance(&TimeStat::low),
          .high = median + distance(&TimeStat::high),
          .samples = std::min(first.samples, second.samples)};
}

double relative_spread(const TimeStat& time) {
  return time.median.count() > 0 ? (time.high - time.low) / time.median / 2 : 0.0;
}

namespace {

bool is_precise(const StoppingRule& rule, const Series& series) {
  return std::ssize(series.visit_medians) >= rule.min_visits && series.spent >= rule.min_time &&
         relative_half_width(series.visit_medians) <= rule.precision;
}

}  // namespace

void Series::add(std::span<const double> seconds, Seconds duration) {
  samples.insert(samples.end(), seconds.begin(), seconds.end());
  visit_medians.push_back(summarise(seconds).median.count());
  spent += duration;
}

int missing_samples(const StoppingRule& rule, const Series& series) {
  return std::max(0, rule.fewest_samples - static_cast<int>(series.samples.size()));
}

int missing_firsts(const StoppingRule& rule, const Series& series) {
  return series.with_first ? std::max(0, rule.fewest_first - static_cast<int>(series.visit_medians.size())) : 0;
}

bool lacks_samples(const StoppingRule& rule, const Series& series) {
  return missing_samples(rule, series) > 0 || missing_firsts(rule, series) > 0;
}

bool is_enough(const StoppingRule& rule, std::span<const Series> series, Seconds spent) {
  if (std::ranges::any_of(series, [&](const Series& one) { return lacks_samples(rule, one); })) return false;
  return spent >= rule.budget ||
         std::ranges::all_of(series, [&](const Series& one) { return is_precise(rule, one); });
}

}  // namespace pp::profile
