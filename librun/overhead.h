// What the executor takes for an operation beside its layers (operation_overhead of a profile), measured on
// runs of a model that computes next to nothing. For pp-profile; free of Torch.
#pragma once

#include "libprofile/core/profile.h"
#include "libprofile/device/device_set.h"

namespace pp::run {

/// Profiles a model of two tiny layers and trains it on `devices`: two stages on the first two of them, one
/// where there is only one. An operation costs the time from its start to the start of the next one of its
/// kind, as long as it waits for nobody: forwards of the first stage, which end with a message, and backwards
/// of the last. What the layers take by their profile is subtracted; never less than 0. About a second; throws
/// as profile_model() and run() do.
OperationOverhead measure_overhead(const profile::DeviceSet& devices);

}  // namespace pp::run
