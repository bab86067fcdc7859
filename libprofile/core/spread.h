// How a time varies from one time to the next.
#pragma once

#include "libprofile/core/units.h"

namespace pp {

/// Of one measured time: how far its 16th and its 84th percentile lie from the median. It is drawn as median +
/// shift + (z < 0 ? below : above) z, z standard normal: two half normals that meet. `shift`: of a sum of
/// several times, whose median is not the sum of their medians; else 0.
struct Spread {
  Seconds below{}, above{};
  Seconds shift{};
  /// What the mean is beyond the median, or the sum of medians.
  Seconds mean() const { return shift + skew(); }
  /// The part of it that comes from unequal halves: (above - below) / sqrt(2 pi).
  Seconds skew() const { return (above - below) * 0.3989422804014327; }
  bool operator==(const Spread&) const = default;
};

/// Of `factor` times as long a time.
inline Spread operator*(const Spread& spread, double factor) {
  return {spread.below * factor, spread.above * factor, spread.shift * factor};
}

/// Of the sum of two times that vary independently: squares of distances add up, and so do means.
Spread operator+(const Spread& a, const Spread& b);

}  // namespace pp
