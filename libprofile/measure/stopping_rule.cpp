#include "libprofile/measure/stopping_rule.h"

#include <algorithm>

#include "libprofile/measure/statistics.h"

namespace pp::profile {
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
