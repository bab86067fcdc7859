// What a worker counts of the copies of its stages. Free of Torch.
#pragma once

#include <cstdint>

#include "libprofile/core/units.h"

namespace pp::run {

/// Copies of stages between host and device, one way.
struct SwapCount {
  std::int64_t count = 0;
  Bytes bytes;
  Seconds time{};
  void add(Bytes more, Seconds taken) { ++count, bytes += more, time += taken; }
};

/// Where weights live on the host: what came to the device and went back in training. The worker's copying
/// thread writes it.
struct SwapRecord {
  SwapCount in, out;
};

}  // namespace pp::run
