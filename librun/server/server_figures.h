// What a parameter server counts. Free of Torch.
#pragma once

#include <cstdint>

#include "libprofile/core/units.h"

namespace pp::run {

/// How far apart replicas were, and what they brought and took.
struct ServerFigures {
  std::int64_t updates = 0;        ///< mini-batches that replicas have finished
  std::int64_t stale = 0;          ///< those of others between a begin and its end, over all updates
  std::int64_t largest_stale = 0;  ///< of one update
  std::int64_t largest_lead = 0;   ///< mini-batches that a replica was ahead of the slowest when it began
  Bytes pushed, fetched;           ///< of all replicas, by memory or by messages
};

}  // namespace pp::run
