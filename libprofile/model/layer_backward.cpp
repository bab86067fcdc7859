#include "libprofile/model/layer_backward.h"

#include <algorithm>
#include <utility>

namespace pp::model::detail {
namespace {

Tensors unpacked(const LayerGraph& graph) {
  Tensors saved;
  for (const torch::autograd::SavedVariable& variable : graph.saved) saved.push_back(variable.unpack());
  return saved;
}

/// Whether the forward left what the layer's own backward reads; under autocast it records a graph instead.
bool is_written(const BoundLayer& layer, const LayerGraph& graph) {
  return layer.backward && graph.outputs.empty() && graph.weight_gradients.empty();
}

}  // namespace

bool wants_input_gradient(const PlannedLayer& planned) {
  return std::ranges::find(planned.source_gradient, true) != planned.source_gradient.end();
}

Tensors LayerBackward::whole(std::size_t u, LayerGraph& graph, TensorSpan arrived, WeightSums& sums) const {
  if (is_written(segment.layers[u], graph)) {
    const Tensors saved = unpacked(graph);
    Tensors gradients = written_inputs(u, saved, arrived);
    written_parameters(u, saved, arrived, sums);
    graph = LayerGraph();
    return gradients;
  }
  Tensors results = recorded(u, graph, arrived);
  const std::size_t inputs = segment.plan.order[u].sources.size();
  for (std::size_t i = inputs; i < results.size(); ++i) sums.add(i - inputs, std::move(results[i]));
  results.resize(inputs);
  return results;
}

Tensors LayerBackward::inputs(std::size_t u, LayerGraph& graph, Tensors arrived) const {
  const BoundLayer& layer = segment.layers[u];
  const std::size_t count = segment.plan.order[u].sources.size();
  const bool done = weights_of(u).empty();
  Tensors results;
  if (is_written(layer, graph)) {
    results = written_inputs(u, unpacked(graph), arrived);
  } else if (!done && layer.weight_gradient == WeightGradient::with_input) {
    results = recorded(u, graph, arrived);
    graph.weight_gradients.assign(results.begin() + count, results.end());
    results.resize(count);
    return results;
  } else {
    results = run_backward(graph, arrived, graph.inputs, done ? Graph::free : Graph::keep, engine);
  }
  if (done) {
    graph = LayerGraph();
  } else {
    graph.output_gradients = std::move(arrived);
  }
  return results;
}

void LayerBackward::parameters(std::size_t u, LayerGraph& graph, WeightSums& sums) const {
  if (is_written(segment.layers[u], graph)) {
    written_parameters(u, unpacked(graph), graph.output_gradients, sums);
    graph = LayerGraph();
    return;
  }
  Tensors results = std::move(graph.weight_gradients);
  if (results.empty()) {
    Edges wanted;
    add_leaf_edges(weights_of(u), wanted);
    results = run_backward(graph, graph.output_gradients, wanted, Graph::free, engine);
  }
  graph = LayerGraph();
  for (std::size_t i = 0; i < results.size(); ++i) sums.add(i, std::move(results[i]));
}

Tensors LayerBackward::written_inputs(std::size_t u, TensorSpan saved, TensorSpan arrived) const {
  const PlannedLayer& planned = segment.plan.order[u];
  if (!wants_input_gradient(planned) || !arrived[0].defined()) return Tensors(planned.sources.size());
  return segment.layers[u].backward->inputs(saved, weights_of(u), arrived[0]);
}

void LayerBackward::written_parameters(std::size_t u, TensorSpan saved, TensorSpan arrived,
                                       WeightSums& sums) const {
  const WrittenBackward& backward = *segment.layers[u].backward;
  if (backward.weights && arrived[0].defined()) backward.weights(saved, arrived[0], sums);
}

Tensors LayerBackward::recorded(std::size_t u, LayerGraph& graph, TensorSpan arrived) const {
  Edges wanted = graph.inputs;
  add_leaf_edges(weights_of(u), wanted);
  Tensors results = run_backward(graph, arrived, wanted, Graph::free, engine);
  graph = LayerGraph();
  return results;
}

}  // namespace pp::model::detail
