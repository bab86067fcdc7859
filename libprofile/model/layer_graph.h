// The autograd graph of one layer, cut off at its inputs and outputs and kept as edges: no tensor lives longer
// because of the cuts than the operations inside need it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <span>
#include <vector>

namespace pp::model::detail {

using Edges = std::vector<torch::autograd::Edge>;

/// What backward of one layer of one micro-batch needs. Invalid edges stand for tensors without gradient.
struct LayerGraph {
  Edges inputs;
  Edges outputs;
  /// The weight gradients are computed together with the input gradients, also when backward is split.
  bool weights_with_inputs = false;

  /// Of a layer that is recomputed: all there is until its forward has run again.
  std::vector<at::Tensor> kept_inputs;

  // Between the input gradient and the weight gradient one of the two is kept.
  std::vector<at::Tensor> output_gradients;  ///< per output, undefined where no gradient arrived
  std::vector<at::Tensor> weight_gradients;  ///< per parameter

  /// Nothing is left to do.
  bool empty() const { return outputs.empty() && kept_inputs.empty() && weight_gradients.empty(); }
};

/// The same storage as `tensor`, at the start of a new graph; `edge` receives the place where its gradient
/// comes out.
at::Tensor cut_input(const at::Tensor& tensor, torch::autograd::Edge& edge);

/// The edge through which a gradient enters at the output `tensor`, invalid when it has none.
torch::autograd::Edge output_edge(const at::Tensor& tensor);

/// `tensor` itself when it has default strides and fills its storage, else a copy that does. Outputs and
/// gradients pass through here, so a tensor looks the same whether it stays in a stage or travels. Recorded
/// when gradients are.
at::Tensor dense(const at::Tensor& tensor);

enum class Graph { free, keep };

/// Gradients of the `wanted` edges, in their order, from the `output_gradients`; undefined for an invalid edge
/// and where nothing arrives. They may alias each other and `output_gradients`. Runs in the calling thread
/// (enter_worker_thread()).
std::vector<at::Tensor> run_backward(const LayerGraph& graph, std::span<const at::Tensor> output_gradients,
                                     const Edges& wanted, Graph after);

/// The edges at which gradients of leaves come out.
Edges leaf_edges(std::span<const at::Tensor> leaves);

}  // namespace pp::model::detail
