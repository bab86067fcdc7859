// A layer that runs a small graph: nodes one after the other in one autograd segment. A call of LibTorch alone
// is a graph of one node.
#pragma once

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/ops.h"

namespace pp::model {

/// `layer`: of op graph or aten. Throws pp::Error (data) with the name of the node that cannot be run.
BoundLayer bind_graph(const Layer& layer, const ResolvedLayer& resolved);
/// Of op graph.
BoundLayer bind_loss_graph(const LossSpec& loss, const ResolvedLayer& resolved);

}  // namespace pp::model
