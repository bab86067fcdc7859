// Whether a device was worth as much at the end of a measurement as at its beginning. Pure, Torch-free.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace pp::profile {

/// How much longer the reference took in the last quarter of a series than in the first, by their medians: 0.1
/// is 10 % longer. Nothing below 8 values.
std::optional<double> reference_change(std::span<const double> seconds);

/// A change of more than 10 %, as a sentence with its remedy.
std::optional<std::string> reference_finding(std::span<const double> seconds);

}  // namespace pp::profile
