// How a time varies from one time to the next.
#pragma once

#include "libprofile/core/units.h"

namespace pp {

/// How a time varies: how far its 16th and its 84th percentile lie from the median. It is drawn as median +
/// (z < 0 ? below : above) z, z standard normal: two half normals that meet at the median.
struct Spread {
  Seconds below{}, above{};
  /// What its mean is beyond its median: (above - below) / sqrt(2 pi).
  Seconds skew() const { return (above - below) * 0.3989422804014327; }
  bool operator==(const Spread&) const = default;
};

}  // namespace pp
