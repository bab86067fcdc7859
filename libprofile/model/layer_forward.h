// The forward of one layer of a segment, with its graph or without: first in the forward walk, again inside
// backward where the layer is recomputed.
#pragma once

#include <vector>

#include "libprofile/model/bound_segment.h"
#include "libprofile/model/layer_graph.h"
#include "libprofile/model/segment.h"

namespace pp::model::detail {

/// What all layers of a pass share. References live as long as the walk.
struct LayerForward {
  const BoundSegment& segment;
  const Weights& weights;
  const PassContext& context;
  std::vector<BatchStatistics>& statistics;  ///< receives those of batch norm in training

  /// Outputs of layer `u`, detached and dense. `inputs` as its sources. What backward
  /// needs goes to `graph`, which is empty; without one nothing is kept.
  Tensors run(std::size_t u, Tensors inputs, LayerGraph* graph) const;

 private:
  bool writes_backward(const BoundLayer& layer, TensorSpan inputs) const;
  Tensors compute(std::size_t u, TensorSpan inputs, Tensors* saved) const;
  Tensors record(std::size_t u, Tensors inputs, LayerGraph& graph) const;
  Tensors call(std::size_t u, TensorSpan inputs, Tensors* saved) const;
};

}  // namespace pp::model::detail
