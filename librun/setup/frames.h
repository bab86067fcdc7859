// What a stream of frames (PARTIME) asks of model and data, before work starts. Torch-free.
#pragma once

#include "librun/data/order.h"
#include "librun/options/run_options.h"

namespace pp::run {

/// Throws pp::Error (data).
void check_frames(const plan::Plan& plan, const ResolvedModel& model, const EpochShape& epoch);

}  // namespace pp::run
