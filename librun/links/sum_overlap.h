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
/// eighth of the computation (worker/reductions.h). By how much this takes less than both one after
/// the other, of the 7/8 of the sum that can be over when the computation is: 0 to 1, on the rank where it is
/// smallest; the same on all ranks.
double measure_sum_overlap(Peers& peers, Bytes size, const Compute& compute);

}  // namespace pp::run
