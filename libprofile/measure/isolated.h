// Each layer alone on random inputs, for a model that does not fit as a whole.
#pragma once

#include "libprofile/measure/profile_run.h"

namespace pp::profile {

/// One profile in the making per layer, the loss with the last one; `options.budget_per_size` is for all layers
/// together. A layer's sizes that do not fit are its own points. Throws as profile_model(); when a layer does
/// not fit at any size, too.
Profile profile_layers_alone(const ResolvedModel& model, const ProfileOptions& options, Observer& observer,
                             const Environment& environment);

}  // namespace pp::profile
