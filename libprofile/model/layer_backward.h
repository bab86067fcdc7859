// The backward of one layer of a segment, by autograd or written out, whole or in halves.
#pragma once

#include "libprofile/model/bound_segment.h"
#include "libprofile/model/layer_graph.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/weight_sums.h"

namespace pp::model::detail {

/// What all layers of a walk share. `graph` is what the layer's forward has left; what is no longer needed of
/// it is let go. `arrived`: the gradients of its outputs. Inputs that want no gradient get none.
struct LayerBackward {
  const BoundSegment& segment;
  const Weights& weights;
  EngineCall& engine;

  /// Returns the input gradients.
  Tensors whole(std::size_t u, LayerGraph& graph, TensorSpan arrived, WeightSums& sums) const;
  /// The halves; `graph` keeps what the second one needs.
  Tensors inputs(std::size_t u, LayerGraph& graph, Tensors arrived) const;
  void parameters(std::size_t u, LayerGraph& graph, WeightSums& sums) const;

 private:
  TensorSpan weights_of(std::size_t u) const { return weights.of(segment.plan.order[u].position); }
  Tensors written_inputs(std::size_t u, Tensors& saved, TensorSpan arrived) const;
  void written_parameters(std::size_t u, Tensors& saved, TensorSpan arrived, WeightSums& sums) const;
  /// Of the inputs, then of the weights.
  Tensors at_once(std::size_t u, const LayerGraph& graph, TensorSpan arrived) const;
};

/// Whether any input does.
bool wants_input_gradient(const PlannedLayer& planned);

}  // namespace pp::model::detail
