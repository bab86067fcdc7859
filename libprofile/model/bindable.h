// Whether a model can be run: what LibTorch says of it. Torch-free.
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

/// Throws pp::Error (data) for a layer, or the loss, that can be planned but not run, and for a call that
/// LibTorch does not take; names it. Computes.
void check_bindable(const ResolvedModel& model);

}  // namespace pp::model
