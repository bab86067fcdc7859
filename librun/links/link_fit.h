// latency + bytes/bandwidth through measured message times. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "libprofile/core/cluster.h"

namespace pp::run {

struct LinkFit {
  Seconds latency{};
  BytesPerSecond bandwidth;
  double residual = 0;  ///< largest relative error over the samples
};

/// One measured value, and the one that its error is relative to.
struct LinePoint {
  double x = 0, y = 0, scale = 0;
};
struct Line {
  double start = 0, slope = 0;  ///< neither is below 0
};
/// Robust against outliers (see fit_link()). Needs two different places.
Line fit_line(std::span<const LinePoint> points);

/// The straight line through the medians that minimises Huber's loss (Annals of Mathematical Statistics 1964)
/// of the relative errors: relative, because sizes span four orders; Huber's, so that a size during which the
/// machine was interrupted does not bend the line. Solved by reweighting, the scale by the median absolute
/// error. Needs two different sizes and times above 0. A line that would begin below 0 goes through 0; where
/// times do not grow with the size, the bandwidth is what would make the largest message 1 % longer than an
/// empty one. It is at most kLargestBandwidth, which pp-plan accepts.
LinkFit fit_link(std::span<const LinkSample> samples);

/// A sentence with its remedy where the line misses a size by more than a quarter; `what` names the link.
std::optional<std::string> fit_finding(const std::string& what, const LinkFit& fit,
                                       std::span<const LinkSample> samples);

}  // namespace pp::run
