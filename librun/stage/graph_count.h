// Passes that are recorded as CUDA graphs, counted. Torch-free.
#pragma once

#include <cstdint>

#include "libprofile/core/units.h"

namespace pp::run {

struct GraphCount {
  std::int64_t recorded = 0;  ///< passes, each with graphs of its forward and backward
  std::int64_t replayed = 0;  ///< micro-batches that have run on them
  Bytes bytes;                ///< of their tensors, part of the worker's
  bool operator==(const GraphCount&) const = default;
  GraphCount& operator+=(const GraphCount& more) {
    recorded += more.recorded, replayed += more.replayed, bytes += more.bytes;
    return *this;
  }
};

}  // namespace pp::run
