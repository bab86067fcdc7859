// What makes a profile doubtful, as sentences with their remedy; whether a device was worth as much at the
// end of a measurement as at its beginning. Pure, Torch-free.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/device/device_set.h"
#include "libprofile/device/machine.h"

namespace pp::profile {

/// Known before measuring: more cores asked for than the machine has; a load average above the cores that it
/// counts; a cache loss (device/reference_kernel.h) above 2.
std::vector<std::string> conditions_findings(const DeviceSet& devices, int machine_cores,
                                             const std::optional<Load>& load, std::optional<double> cache_loss);

/// Of a finished profile, one sentence each: the micro-batch sizes at which the whole model's forward or
/// backward spreads by more than 10 %; those at which the sum of the layers differs from the whole model by
/// more than 10 %; those at which, under one of the conditions, the full backward takes more than 10 % longer
/// than its two halves, which do all that it does.
std::vector<std::string> profile_findings(const Profile& profile);

/// Nothing unless at least three, and more than a tenth, of the passes are outliers (statistics.h) of their
/// size.
std::optional<std::string> outlier_finding(int outliers, int passes);

/// How much longer the reference took in the last quarter of a series than in the first, by their medians: 0.1
/// is 10 % longer. Nothing below 8 values.
std::optional<double> reference_change(std::span<const double> seconds);

/// A change of more than 10 %, as a sentence with its remedy.
std::optional<std::string> reference_finding(std::span<const double> seconds);

}  // namespace pp::profile
