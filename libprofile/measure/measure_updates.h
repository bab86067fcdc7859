// The third step of a profile: what updates take.
#pragma once

#include <vector>

#include "libprofile/measure/profiled_devices.h"

namespace pp::profile {

/// Of sgd with momentum and of adamw, at learning rate 0, behind training passes of the first size. None where
/// the subject's part has no trained parameters. An optimizer whose state does not fit is left out, with a
/// warning.
std::vector<OptimizerProfile> measure_updates(ProfiledDevices& devices, const Subject& subject);

}  // namespace pp::profile
