// What an optimizer update takes by the bytes of its parameters, from a profile's few points.
#pragma once

#include "libprofile/core/profile.h"

namespace pp {

struct UpdateLine {
  Seconds fixed{};
  double seconds_per_byte = 0;  ///< of parameters
  bool operator==(const UpdateLine&) const = default;
};

/// Theil-Sen over `parts`: the median of the slopes of all pairs of different bytes, then the median of what
/// the points leave above it; neither is negative. Points of one size, or no parts, give a line through the
/// origin: the median of seconds per byte, or the whole model's. Zero without parameters.
UpdateLine update_line(const OptimizerProfile& optimizer);

}  // namespace pp
