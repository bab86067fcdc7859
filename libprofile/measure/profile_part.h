// A profile in the making: bytes, times and updates of a part of the model, and the document from them; or so
// for each layer alone on random inputs, for a model that does not fit as a whole.
#pragma once

#include <vector>

#include "libprofile/core/kernel_choice.h"
#include "libprofile/measure/profiled_devices.h"

namespace pp::profile {

/// `layers` of the document are those of the subject's part. The kernels that are `known` are not chosen again.
/// Throws model::OutOfMemory when the smallest size does not fit, pp::Error (run) when the model cannot run.
Profile profile_part(const Subject& subject, std::vector<KernelChoice> known = {});

/// One profile in the making per layer, the loss with the last one; `options.budget_per_size` is for all layers
/// together. A layer's sizes that do not fit are its own points. Throws as profile_model(); when a layer does
/// not fit at any size, too.
Profile profile_layers_alone(const ResolvedModel& model, const ProfileOptions& options, Observer& observer,
                             const Environment& environment);

}  // namespace pp::profile
