#include "librun/links/link_fit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pp::run {

namespace {

constexpr double kTolerance = 0.25;

struct Line {
  double start = 0, slope = 0;

  double at(const LinkSample& sample) const { return start + slope * static_cast<double>(sample.size.value); }
  double relative_error(const LinkSample& sample) const {
    return std::abs(at(sample) / sample.time.median.count() - 1);
  }
};

// What a line is made of when its start or its slope would be negative.
Line flat(std::span<const LinkSample> samples, double mean) {
  const auto largest = std::ranges::max_element(samples, {}, &LinkSample::size)->size;
  return {mean, 0.01 * mean / static_cast<double>(largest.value)};
}

// Minimises the sum of weight * ((a + b x - t)/t)^2: the normal equations of a weighted straight line.
Line weighted_line(std::span<const LinkSample> samples, std::span<const double> weights) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto x = static_cast<double>(samples[i].size.value);
    const double t = samples[i].time.median.count();
    const double weight = weights[i] / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
  const double start = (wt - slope * wx) / w;
  if (slope <= 0) return flat(samples, wt / w);
  return start >= 0 ? Line{start, slope} : Line{0, wxt / wxx};
}

// Huber's weights: 1 up to 1.345 deviations, falling as 1/error beyond. The deviation is at least 1 %: times
// are not known better.
std::vector<double> huber_weights(std::span<const LinkSample> samples, const Line& line) {
  std::vector<double> errors;
  for (const LinkSample& sample : samples) errors.push_back(line.relative_error(sample));
  std::vector<double> sorted = errors;
  std::ranges::sort(sorted);
  const double deviation = std::max(1.4826 * sorted[(sorted.size() - 1) / 2], 0.01);
  const double limit = 1.345 * deviation;
  for (double& error : errors) error = error > limit ? limit / error : 1;
  return errors;
}

double largest_error(std::span<const LinkSample> samples, const Line& line) {
  double largest = 0;
  for (const LinkSample& sample : samples) largest = std::max(largest, line.relative_error(sample));
  return largest;
}

}  // namespace

LinkFit fit_link(std::span<const LinkSample> samples) {
  constexpr int kRounds = 50;  // each brings the line several times closer; exact data stands still at once
  std::vector<double> weights(samples.size(), 1);
  Line line;
  for (int i = 0; i < kRounds; ++i) {
    line = weighted_line(samples, weights);
    weights = huber_weights(samples, line);
  }
  line.slope = std::max(line.slope, 1 / kLargestBandwidth.value);
  return {Seconds(line.start), BytesPerSecond(1 / line.slope), largest_error(samples, line)};
}

std::optional<std::string> fit_finding(const std::string& what, const LinkFit& fit,
                                       std::span<const LinkSample> samples) {
  if (fit.residual <= kTolerance) return std::nullopt;
  const auto error = [&](const LinkSample& sample) {
    return std::abs((fit.latency + sample.size / fit.bandwidth) / sample.time.median - 1);
  };
  const LinkSample worst = *std::ranges::max_element(samples, {}, error);
  return what + ": latency and bandwidth miss the time of " + to_text(worst.size) + " by " +
         std::to_string(std::lround(100 * fit.residual)) +
         " %: plans with messages of that size will be as rough; measure again on an idle machine, or set the "
         "level's "
         "values by hand";
}

}  // namespace pp::run
