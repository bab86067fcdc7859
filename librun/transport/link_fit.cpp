#include <algorithm>
#include <cmath>
#include <utility>

#include "librun/transport/link_meter.h"

namespace pp::run {

namespace {

// Minimises the sum of ((a + b x - t)/t)^2: the normal equations of a weighted straight line with weights
// 1/t^2.
std::pair<double, double> relative_line(const std::vector<LinkSample>& samples) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;
  for (const LinkSample& sample : samples) {
    const auto x = static_cast<double>(sample.size.value);
    const double t = sample.time.median.count();
    const double weight = 1 / (t * t);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double slope = (w * wxt - wx * wt) / (w * wxx - wx * wx);
  const double start = (wt - slope * wx) / w;
  if (start >= 0) return {start, slope};
  return {0, wxt / wxx};
}

}  // namespace

Level fit_link(std::string_view name, int devices, std::vector<LinkSample> samples) {
  const auto [latency, seconds_per_byte] = relative_line(samples);
  Level level;
  level.name = name;
  level.devices = devices;
  level.latency = Seconds(latency);
  level.bandwidth = BytesPerSecond(1 / seconds_per_byte);
  for (const LinkSample& sample : samples) {
    const double fitted = latency + static_cast<double>(sample.size.value) * seconds_per_byte;
    const double measured = sample.time.median.count();
    level.fit_residual = std::max(level.fit_residual, std::abs(fitted - measured) / measured);
  }
  level.samples = std::move(samples);
  return level;
}

}  // namespace pp::run
