// Bytes that a formula gives, as an integer that sums and products of a plan can hold.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pp::plan {

/// Rounded up; from 0 to 10^17, which is more than any machine has.
inline std::int64_t whole_bytes(double bytes) {
  return static_cast<std::int64_t>(std::ceil(std::clamp(bytes, 0.0, 1e17)));
}

}  // namespace pp::plan
