// Where things stand in the SVG pictures. Internal to them.
#pragma once

#include <algorithm>

#include "libplan/draw/time_axis.h"
#include "libprofile/core/svg_writer.h"

namespace pp::plan {

/// Pixels. Both parts of the timeline share the time axis: names at the left, figures at the right of it.
struct SvgLayout {
  static constexpr double kLeft = 84;
  static constexpr double kRight = 112;

  double width = 0;
  Seconds makespan{};
  TimeAxis axis;
  double left = kLeft;  ///< more than kLeft where names are long

  double plot() const { return width - left - kRight; }
  double x(Seconds time) const {
    return left + (makespan.count() > 0 ? std::clamp(time / makespan, 0.0, 1.0) * plot() : 0);
  }
};

}  // namespace pp::plan
