// All checks before a training that need no LibTorch.
#pragma once

#include "libprofile/device/device_set.h"
#include "librun/options/run_options.h"
#include "librun/setup/setup.h"

namespace pp::run {

/// For the workers that are here. Throws pp::Error.
Setup check_setup(const plan::Plan& plan, const RunOptions& options, const profile::MachineDevices& machine,
                  const Placement& placement = {});

}  // namespace pp::run
