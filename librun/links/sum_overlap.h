// Which share of a backward hides the all-reduce of its gradients, between ranks.
#pragma once

#include <functional>

#include "libprofile/core/units.h"
#include "librun/transport/peers.h"

namespace pp::run {

/// Keeps the calling thread, or the device that it has, busy for so long.
using Compute = std::function<void(Seconds)>;

/// All ranks compute for as long as the sum of `size` bytes over all of them takes alone, as pp-run adds in
/// replica order; once with nothing else, and once with the sum beside it, an eighth of the bytes after each
/// eighth of the computation (worker/overlapped_sum.h). The share of the computation by which this takes less
/// than both one after the other, 0 to 1, on the rank where it is smallest; the same on all ranks. With an
/// eighth left to add at the end 7/8 is the most, as with a backward of eight equal buckets.
double measure_sum_overlap(Peers& peers, Bytes size, const Compute& compute);

}  // namespace pp::run
