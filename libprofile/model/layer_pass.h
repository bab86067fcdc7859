// One layer of a segment, forward and backward. Its autograd graph is cut off at its inputs and outputs and
// kept as edges: no tensor lives longer because of the cuts than the operations inside need it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <vector>

#include "libprofile/model/bound_segment.h"
#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/segment.h"

namespace pp::model::detail {

using Edges = c10::SmallVector<torch::autograd::Edge, 6>;

/// What backward of one layer of one micro-batch needs. Invalid edges stand for tensors without gradient.
struct LayerGraph {
  Edges inputs;
  Edges outputs;
  bool written = false;  ///< its backward is: there are no edges
  /// Of a written backward instead of the edges; so what watches over what autograd saves sees these too.
  c10::SmallVector<torch::autograd::SavedVariable, 4> saved;

  /// Of a layer that is recomputed: all there is until its forward has run again.
  Tensors kept_inputs;

  // Between the input gradient and the weight gradient: of a written backward what is saved now, and of all
  // layers one of the two others.
  Tensors left;
  Tensors output_gradients;  ///< per output, undefined where no gradient arrived
  Tensors weight_gradients;  ///< per parameter

  /// Nothing is left to do.
  bool empty() const { return outputs.empty() && !written && kept_inputs.empty() && weight_gradients.empty(); }
};

/// The same storage as `tensor`, at the start of a new graph; `edge` receives the place where its gradient
/// comes out.
at::Tensor cut_input(const at::Tensor& tensor, torch::autograd::Edge& edge);

/// The edge through which a gradient enters at the output `tensor`, invalid when it has none.
torch::autograd::Edge output_edge(const at::Tensor& tensor);

/// `tensor` itself when it has the strides of `format` and fills its storage, else a copy that does. Outputs
/// and gradients pass through here, so a tensor looks the same whether it stays in a stage or travels. Recorded
/// when gradients are.
at::Tensor dense(const at::Tensor& tensor, MemoryFormat format);
/// The same for an input, which may be a part of a larger storage.
at::Tensor arranged(const at::Tensor& tensor, MemoryFormat format);

enum class Graph { free, keep };

/// What autograd is called with, from call to call in the same memory.
struct EngineCall {
  std::vector<torch::autograd::Edge> roots, wanted;
  std::vector<at::Tensor> gradients;

  void clear() {
    roots.clear();
    wanted.clear();
    gradients.clear();
  }
};

/// Gradients of the `wanted` edges, in their order, from the `output_gradients`; undefined for an invalid edge
/// and for leaves where nothing arrives, zero for such inputs. They may alias each other and
/// `output_gradients`. Runs in the calling thread (enter_worker_thread()). Leaves nothing in `call`.
Tensors run_backward(const LayerGraph& graph, TensorSpan output_gradients, const Edges& wanted, Graph after,
                     EngineCall& call);

/// Adds the edges at which gradients of leaves come out.
void add_leaf_edges(TensorSpan leaves, Edges& edges);

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
  /// Gradients of the inputs, then of the weights.
  Tensors at_once(std::size_t u, const LayerGraph& graph, TensorSpan arrived) const;
};

/// Whether any input does.
bool wants_input_gradient(const PlannedLayer& planned);

}  // namespace pp::model::detail
