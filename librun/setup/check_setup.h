// All checks before a training that need no LibTorch.
#pragma once

#include <optional>

#include "libprofile/device/device_set.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/options/run_options.h"
#include "librun/setup/setup.h"

namespace pp::run {

/// For the workers that are here. `found`: as for find_start(). Throws pp::Error.
Setup check_setup(const plan::Plan& plan, const RunOptions& options, const profile::MachineDevices& machine,
                  const Placement& placement = {}, const std::optional<FoundCheckpoint>& found = std::nullopt);

}  // namespace pp::run
