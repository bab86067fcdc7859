// profile_model() in an environment that the caller describes: the clock, the machine and its load are
// arguments.
#pragma once

#include <optional>

#include "libprofile/device/device_set.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/timer.h"
#include "libprofile/measure/profiler.h"

namespace pp::profile {

struct Environment {
  const Clock& clock;
  MachineDevices machine;
  Bytes memory{};              ///< the machine's or the CUDA device's; the devices of a set share it equally
  std::optional<Load> load{};  ///< before measuring
  std::optional<double> cache_loss{};  ///< device/reference_kernel.h, of CPU devices
  Context context{};                   ///< goes into the profile
};

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer,
                      const Environment& environment);

}  // namespace pp::profile
