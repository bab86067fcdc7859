// How links are sampled (message sizes, how often, what is recorded), and latency + bytes/bandwidth through
// the measured times. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/link.h"
#include "libprofile/core/units.h"

namespace pp::run {

struct LinkFit {
  Link link;
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

/// The same of sums, whose vectors may exceed the caches: up to `cached` on one line and past it on a steeper
/// one, each through the sizes on its side, at least three. Of all divisions into two sides the one whose
/// relative errors have the least sum, if that is so much less than one line's that it is worth two values more
/// (Schwarz, Annals of Statistics 1978, for Laplace's errors) and a byte past `cached` costs at least a quarter
/// more.
LinkFit fit_sums(std::span<const LinkSample> samples);

/// A sentence with its remedy where the line misses a size by more than a quarter; `what` names the link.
std::optional<std::string> fit_finding(const std::string& what, const LinkFit& fit,
                                       std::span<const LinkSample> samples);

struct LinkSweep {
  Bytes smallest{1 << 10};
  Bytes largest{8 << 20};
  /// Counted messages per size and direction; those of the warm-up come before them.
  int repetitions = 60;
  int warm_up = 10;
};

/// From the smallest on, each twice the one before. Throws pp::Error (usage) unless there are two.
std::vector<Bytes> sizes_of(const LinkSweep& sweep);

/// Median, 16th and 84th percentile of at least one time, in seconds.
LinkSample summarise(Bytes size, std::vector<double> times);

}  // namespace pp::run
