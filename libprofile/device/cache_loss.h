// Whether what a core leaves alone for a moment stays in the caches. Torch-free.
#pragma once

#include <functional>

#include "libprofile/device/clock.h"

namespace pp::profile {

/// How many times as long `work` takes once `pause` has passed since it was done as directly after it: the
/// median of 15 pairs. The core spins meanwhile, so that its clock stays up.
double slowdown_after(Seconds pause, const Clock& clock, const std::function<void()>& work);

/// The same of reading 8 MiB, after 5 ms: about 1 where this thread has the last cache to itself, or where that
/// is smaller; more where others use it up meanwhile, in this machine or in other ones on the same processor.
/// A worker that waits for its neighbour comes back to such caches. Takes 0.1 s.
double cache_loss(const Clock& clock);

}  // namespace pp::profile
