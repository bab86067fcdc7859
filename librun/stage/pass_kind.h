// How the passes of a stage differ for who records them as CUDA graphs, and how many were recorded. Free of
// Torch.
#pragma once

#include <cstdint>

#include "libprofile/core/units.h"

namespace pp::run {

struct PassKind {
  bool splits = false;      ///< its backward: an input gradient, later a weight gradient
  bool sets_sums = false;   ///< its gradients are the first of the step, which others are added to
  bool runs_again = false;  ///< the whole forward, before its backward: the first one keeps no graph
  bool operator==(const PassKind&) const = default;
};

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
