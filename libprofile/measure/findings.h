// What makes a profile doubtful, as sentences with their remedy. Pure, Torch-free.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/device/device_set.h"
#include "libprofile/device/machine.h"

namespace pp::profile {

/// Known before measuring: more cores asked for than the machine has; a load average above the cores that it
/// counts; a cache loss (device/cache_loss.h) above 2.
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

}  // namespace pp::profile
