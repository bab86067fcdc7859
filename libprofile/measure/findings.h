// What makes a profile doubtful, as sentences with their remedy. Pure, Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/measure/profiler.h"

namespace pp::profile {

/// Known before measuring: more cores asked for than the machine has; a load average above the number of cores.
std::vector<std::string> conditions_findings(const DeviceSet& devices, int machine_cores,
                                             std::optional<double> load);

/// Of a finished profile, per micro-batch size: forward plus backward of the whole model spread by more than 10
/// %; the layers' sum differs from the whole model by more than 10 %.
std::vector<std::string> profile_findings(const Profile& profile);

/// Nothing unless more than a tenth of the passes at this size are outliers (statistics.h).
std::optional<std::string> outlier_finding(std::int64_t micro_batch_size, std::span<const double> pass_seconds);

}  // namespace pp::profile
