// A fixed piece of arithmetic whose time tells what a core, or another device, is worth at the moment: its
// clock, and who shares it. Torch-free.
#pragma once

#include <functional>

#include "libprofile/device/timer.h"

namespace pp::profile {

/// About 50 us on a core of 3 GHz; registers only, so that caches do not matter.
void run_reference();

/// Seconds that one run of `arithmetic` takes on the timer's device. The timer must have no marks.
double time_reference(Timer& timer, const std::function<void()>& arithmetic);

}  // namespace pp::profile
