// What a pass keeps between forward and backward.
#pragma once

#include <memory>
#include <vector>

#include "libprofile/model/layer_graph.h"
#include "libprofile/model/segment.h"

namespace pp::model::detail {

struct PassState {
  std::shared_ptr<const Weights> weights;
  PassContext context;             ///< of the forward, without buffers: recomputed units run in it again
  std::vector<LayerGraph> graphs;  ///< per unit of the segment's plan; empty: nothing to do in backward
  at::TensorOptions loss_options;  ///< of the loss gradient; default without a loss
};

}  // namespace pp::model::detail
