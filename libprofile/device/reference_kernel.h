// Fixed pieces of work whose time tells what a core, or another device, is worth at the moment: its clock,
// its way to memory, who shares them, and whether what a core leaves alone for a moment stays in the caches.
// Torch-free.
#pragma once

#include <functional>

#include "libprofile/device/timer.h"

namespace pp::profile {

/// About 50 us of independent multiplications and additions in registers on a core of 3 GHz, as many at once as
/// the core can do: a chain of dependent ones would leave room for who shares the core, and feel nothing. Then
/// every cache line of 1 MiB of the thread's own is changed: what a pass of a model has driven out of the
/// core's caches comes back from where others share.
void run_reference();

/// Seconds that one run of `work` takes on the timer's device. The timer must have no marks.
double time_reference(Timer& timer, const std::function<void()>& work);

/// How many times as long `work` takes once `pause` has passed since it was done as directly after it: the
/// median of 15 pairs. The core spins meanwhile, so that its clock stays up.
double slowdown_after(Seconds pause, const Clock& clock, const std::function<void()>& work);

/// The same of reading 8 MiB, after 5 ms: about 1 where this thread has the last cache to itself, or where that
/// is smaller; more where others use it up meanwhile, in this machine or in other ones on the same processor.
/// A worker that waits for its neighbour comes back to such caches. Takes 0.1 s.
double cache_loss(const Clock& clock);

}  // namespace pp::profile
