// A fixed piece of work whose time tells what a core, or another device, is worth at the moment: its clock, its
// way to memory, and who shares them. Torch-free.
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

}  // namespace pp::profile
