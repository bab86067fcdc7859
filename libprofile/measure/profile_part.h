// A profile in four steps: bytes, times, updates, and the document from them.
#pragma once

#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/measure/profiled_devices.h"

namespace pp::profile {

/// `layers` of the document are those of the subject's part. The kernels that are `known` are not chosen again.
/// Throws model::OutOfMemory when the smallest size does not fit, pp::Error (run) when the model cannot run.
Profile profile_part(const Subject& subject, std::vector<KernelChoice> known = {});

}  // namespace pp::profile
