// Numbers that several rooms compare times with.
#pragma once

#include <limits>

namespace pp::plan {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Relative; between sums of the same times in another order.
inline constexpr double kRounding = 1e-9;

/// What is estimated so far above the best, as a factor, may still be faster: objectives are not steps.
inline constexpr double kFar = 1.25;

}  // namespace pp::plan
