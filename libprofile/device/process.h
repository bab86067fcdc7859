// What a measuring or training process sets up once, and what it says about itself and its machine. Torch-free.
#pragma once

#include "libprofile/core/context.h"
#include "libprofile/device/device_set.h"

namespace pp::profile {

/// Process-wide settings of whoever measures or trains: malloc thresholds, the saved-tensor meter. Call once,
/// before any tensor exists.
void prepare_process();

/// What this process may use of its machine.
MachineDevices machine_devices();

/// CPU model name, core count, LibTorch version, load average: the context of a measured document.
Context measurement_context();

}  // namespace pp::profile
