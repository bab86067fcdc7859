// A fixed piece of arithmetic whose time tells what a core, or another device, is worth at the moment: its
// clock, and who shares it. Torch-free.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "libprofile/measure/timer.h"

namespace pp::profile {

/// About 50 us on a core of 3 GHz; registers only, so that caches do not matter.
void run_reference();

/// Seconds that one run of `arithmetic` takes on the timer's device. The timer must have no marks.
double time_reference(Timer& timer, const std::function<void()>& arithmetic);

/// How much longer the reference took in the last quarter of a series than in the first, by their medians: 0.1
/// is 10 % longer. Nothing below 8 values.
std::optional<double> reference_change(std::span<const double> seconds);

/// A change of more than 10 %, as a sentence with its remedy.
std::optional<std::string> reference_finding(std::span<const double> seconds);

}  // namespace pp::profile
