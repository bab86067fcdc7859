// Round numbers on a time axis.
#pragma once

#include <string>
#include <string_view>

#include "libprofile/core/units.h"

namespace pp::plan {

/// Ticks at 0, step, 2 * step, ... up to the length.
struct TimeAxis {
  std::string_view unit;  ///< `ms`
  double unit_seconds = 1;
  Seconds step{1};
  int last = 0;      ///< index of the last tick
  int decimals = 0;  ///< of a label

  Seconds time(int tick) const { return tick * step; }
  /// The number alone, in the unit.
  std::string label(int tick) const;
};

/// At most `most` ticks (taken as 3 if less) and at least 2, at 1, 2 or 5 times a power of ten of the unit: ns
/// below 1 us, us below 1 ms, ms below 10 s, then s. A length of 0 has the one tick 0.
TimeAxis time_axis(Seconds length, int most);

}  // namespace pp::plan
