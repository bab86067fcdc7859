#include "librun/links/link_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

constexpr double kTolerance = 0.25;

double error_of(const Line& line, const LinePoint& point) {
  return std::abs(line.start + line.slope * point.x - point.y) / point.scale;
}

// Minimises the sum of weight * ((a + b x - y)/scale)^2: the normal equations of a weighted straight line.
Line weighted_line(std::span<const LinePoint> points, std::span<const double> weights) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [x, y, scale] = points[i];
    const double weight = weights[i] / (scale * scale);
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wy += weight * y;
    wxy += weight * x * y;
  }
  const double slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
  const double start = (wy - slope * wx) / w;
  if (slope <= 0) return {std::max(0.0, wy / w), 0};
  return start >= 0 ? Line{start, slope} : Line{0, std::max(0.0, wxy / wxx)};
}

// Huber's weights: 1 up to 1.345 deviations, falling as 1/error beyond. The deviation is at least 1 %: times
// are not known better.
std::vector<double> huber_weights(std::span<const LinePoint> points, const Line& line) {
  std::vector<double> errors;
  for (const LinePoint& point : points) errors.push_back(error_of(line, point));
  std::vector<double> sorted = errors;
  std::ranges::sort(sorted);
  const double deviation = std::max(1.4826 * sorted[(sorted.size() - 1) / 2], 0.01);
  const double limit = 1.345 * deviation;
  for (double& error : errors) error = error > limit ? limit / error : 1;
  return errors;
}

std::vector<LinePoint> points_of(std::span<const LinkSample> samples) {
  std::vector<LinePoint> points;
  for (const LinkSample& sample : samples) {
    const double time = sample.time.median.count();
    points.push_back({static_cast<double>(sample.size.value), time, time});
  }
  return points;
}

std::vector<double> errors_of(const Link& link, std::span<const LinePoint> points) {
  std::vector<double> errors;
  for (const auto& [x, y, scale] : points) errors.push_back(std::abs(transfer_time(x, 1, link) - y) / scale);
  return errors;
}

double sum_of(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// `link`, and where it meets the line through `larger`, on along that one; nothing where this is no steeper or
// they do not meet at a size.
std::optional<Link> bent_link(Link link, std::span<const LinePoint> larger) {
  std::vector<LinePoint> points(larger.begin(), larger.end());
  const double origin = points.front().x;  // from here on the line is above 0, as fit_line() wants it
  for (LinePoint& point : points) point.x -= origin;
  const Line beyond = fit_line(points);
  const double before = 1 / link.bandwidth.value;
  if (beyond.slope < (1 + kTolerance) * before) return std::nullopt;
  const double meet = (link.latency.count() - beyond.start + beyond.slope * origin) / (beyond.slope - before);
  if (meet <= 0) return std::nullopt;
  link.cached = Bytes(std::llround(meet));
  link.beyond = BytesPerSecond(1 / beyond.slope);
  return link;
}

}  // namespace

Line fit_line(std::span<const LinePoint> points) {
  constexpr int kRounds = 50;  // each brings the line several times closer; exact data stands still at once
  std::vector<double> weights(points.size(), 1);
  Line line;
  for (int i = 0; i < kRounds; ++i) {
    line = weighted_line(points, weights);
    weights = huber_weights(points, line);
  }
  return line;
}

LinkFit fit_link(std::span<const LinkSample> samples) {
  const std::vector<LinePoint> points = points_of(samples);
  Line line = fit_line(points);
  const double largest = std::ranges::max(points, {}, &LinePoint::x).x;
  if (line.slope <= 0) line.slope = 0.01 * line.start / largest;
  line.slope = std::max(line.slope, 1 / kLargestBandwidth.value);
  const Link link{BytesPerSecond(1 / line.slope), Seconds(line.start)};
  return {link, std::ranges::max(errors_of(link, points))};
}

LinkFit fit_sums(std::span<const LinkSample> samples) {
  constexpr std::size_t kFewest = 3;
  LinkFit best = fit_link(samples);
  const std::vector<LinePoint> points = points_of(samples);
  const double sizes = static_cast<double>(points.size());
  double least = std::pow(sizes, -1 / sizes) * sum_of(errors_of(best.link, points));
  for (std::size_t k = kFewest; k + kFewest <= points.size(); ++k) {
    const std::optional<Link> link = bent_link(fit_link(samples.first(k)).link, std::span(points).subspan(k));
    if (!link) continue;
    const std::vector<double> errors = errors_of(*link, points);
    if (sum_of(errors) >= least) continue;
    least = sum_of(errors);
    best = {*link, std::ranges::max(errors)};
  }
  return best;
}

std::optional<std::string> fit_finding(const std::string& what, const LinkFit& fit,
                                       std::span<const LinkSample> samples) {
  if (fit.residual <= kTolerance) return std::nullopt;
  const auto error = [&](const LinkSample& sample) {
    return std::abs(
        transfer_time(static_cast<double>(sample.size.value), 1, fit.link) / sample.time.median.count() - 1);
  };
  const LinkSample worst = *std::ranges::max_element(samples, {}, error);
  return what + ": latency and bandwidth miss the time of " + to_text(worst.size) + " by " +
         std::to_string(std::lround(100 * fit.residual)) +
         " %: plans with messages of that size will be as rough; measure again on an idle machine, or set the "
         "level's "
         "values by hand";
}

std::vector<Bytes> sizes_of(const LinkSweep& sweep) {
  std::vector<Bytes> sizes;
  for (Bytes size = sweep.smallest; size <= sweep.largest; size = size * 2) sizes.push_back(size);
  if (sizes.size() < 2) {
    throw Error(ErrorKind::usage, "link sizes " + to_text(sweep.smallest) + " to " + to_text(sweep.largest) +
                                      ": give at least a doubling");
  }
  return sizes;
}

LinkSample summarise(Bytes size, std::vector<double> times) {
  std::ranges::sort(times);
  const auto at = [&](double share) {
    return Seconds(times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1) + 0.5)]);
  };
  return {size, {at(0.5), at(0.16), at(0.84), static_cast<std::int64_t>(times.size())}};
}

}  // namespace pp::run
