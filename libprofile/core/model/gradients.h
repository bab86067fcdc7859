// Where gradients flow: which parameters are trained, and which inputs of a layer want a gradient. Private to
// resolve().
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp::detail {

/// Fills `trained`, `input_gradient` and `backward` of each layer and of the loss, all else being there. A
/// gradient starts at the loss (without one: at the outputs), flows through floating tensors, and ends at what
/// has no derivative (`aten::detach`), as it does in PyTorch, where such parameters have no `grad`. O(layers +
/// nodes + edges).
void derive_gradients(const ModelGraph& graph, ResolvedModel& model);

}  // namespace pp::detail
