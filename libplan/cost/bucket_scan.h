// How much of an all-reduce runs beside the backward in front of it.
#pragma once

#include <cstdint>
#include <span>

#include "libprofile/core/units.h"

namespace pp::plan {

/// pp-run begins the sum of whole layers of at least this many bytes of gradients as soon as they are complete.
inline constexpr Bytes kBucket(1 << 20);

struct LayerGradient {
  double backward = 0;     ///< seconds
  std::int64_t bytes = 0;  ///< of its weights
};

/// Of `all_reduce` seconds for all these gradients those that are over when the backward is, if nothing hinders
/// them: AR - (max_k (e_k + sum of ar_i for i >= k) - B) with buckets in the order of the backward, complete at
/// e_k and AR's share of bytes long. `layers` in the order of the model. At most B, and AR. O(layers).
double hideable(std::span<const LayerGradient> layers, double all_reduce);

}  // namespace pp::plan
