#include "libprofile/model/layer_backward.h"

#include <algorithm>
#include <utility>

#include "libprofile/model/determinism.h"

namespace pp::model::detail {
namespace {

Tensors unpacked(const LayerGraph& graph) {
  Tensors saved;
  for (const torch::autograd::SavedVariable& variable : graph.saved) saved.push_back(variable.unpack());
  return saved;
}

bool is_trained(TensorSpan weights) {
  return std::ranges::any_of(weights, [](const at::Tensor& weight) { return weight.requires_grad(); });
}

/// As autograd's walk, which computes none for inputs that want no gradient.
void drop_unwanted(const PlannedLayer& planned, Tensors& input_gradients) {
  for (std::size_t i = 0; i < planned.sources.size(); ++i) {
    if (!planned.source_gradient[i]) input_gradients[i].reset();
  }
}

/// Moves the weights' gradients, which stand behind those of `inputs` inputs, to the sums.
void add_weights(Tensors& results, std::size_t inputs, WeightSums& sums) {
  for (std::size_t i = inputs; i < results.size(); ++i) sums.add(i - inputs, std::move(results[i]));
  results.resize(inputs);
}

}  // namespace

bool wants_input_gradient(const PlannedLayer& planned) {
  return std::ranges::find(planned.source_gradient, true) != planned.source_gradient.end();
}

Tensors LayerBackward::whole(std::size_t u, LayerGraph& graph, TensorSpan arrived, WeightSums& sums) const {
  const Determinism determinism(segment.layers[u].deterministic);
  const std::size_t inputs = segment.plan.order[u].sources.size();
  Tensors results;
  if (graph.written && !segment.layers[u].backward->both) {
    Tensors saved = unpacked(graph);
    results = written_inputs(u, saved, arrived);
    written_parameters(u, saved, arrived, sums);
  } else {
    results = at_once(u, graph, arrived);
    add_weights(results, inputs, sums);
  }
  graph = LayerGraph();
  return results;
}

Tensors LayerBackward::inputs(std::size_t u, LayerGraph& graph, Tensors arrived) const {
  const BoundLayer& layer = segment.layers[u];
  const Determinism determinism(layer.deterministic);
  const std::size_t count = segment.plan.order[u].sources.size();
  const bool done = !is_trained(weights_of(u));
  Tensors results;
  if (!done && layer.weight_gradient == WeightGradient::with_input) {
    results = at_once(u, graph, arrived);
    graph = LayerGraph();
    graph.weight_gradients.assign(results.begin() + count, results.end());
    results.resize(count);
    return results;
  }
  if (graph.written && layer.backward->both) {
    results = at_once(u, graph, arrived);
    results.resize(count);
  } else if (graph.written) {
    graph.left = unpacked(graph);
    graph.saved.clear();
    results = written_inputs(u, graph.left, arrived);
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
  const Determinism determinism(segment.layers[u].deterministic);
  if (!graph.weight_gradients.empty()) {
    add_weights(graph.weight_gradients, 0, sums);
  } else if (!graph.written) {
    Edges wanted;
    add_leaf_edges(weights_of(u), wanted);
    Tensors results = run_backward(graph, graph.output_gradients, wanted, Graph::free, engine);
    add_weights(results, 0, sums);
  } else if (segment.layers[u].backward->both) {
    Tensors results = at_once(u, graph, graph.output_gradients);
    results.erase(results.begin(), results.begin() + segment.plan.order[u].sources.size());
    add_weights(results, 0, sums);
  } else {
    Tensors saved = graph.left.empty() ? unpacked(graph) : std::move(graph.left);
    written_parameters(u, saved, graph.output_gradients, sums);
  }
  graph = LayerGraph();
}

Tensors LayerBackward::written_inputs(std::size_t u, Tensors& saved, TensorSpan arrived) const {
  const PlannedLayer& planned = segment.plan.order[u];
  if (!wants_input_gradient(planned) || !arrived[0].defined()) return Tensors(planned.sources.size());
  Tensors results = segment.layers[u].backward->inputs(saved, weights_of(u), arrived[0]);
  if (results.size() == 1) results.resize(planned.sources.size(), results[0]);
  drop_unwanted(planned, results);
  return results;
}

void LayerBackward::written_parameters(std::size_t u, Tensors& saved, TensorSpan arrived,
                                       WeightSums& sums) const {
  const WrittenBackward& backward = *segment.layers[u].backward;
  if (backward.weights && arrived[0].defined() && sums.wants_any())
    backward.weights(saved, weights_of(u), arrived[0], sums);
}

Tensors LayerBackward::at_once(std::size_t u, const LayerGraph& graph, TensorSpan arrived) const {
  const PlannedLayer& planned = segment.plan.order[u];
  if (graph.written) {
    if (!arrived[0].defined()) return Tensors(planned.sources.size() + weights_of(u).size());
    Tensors results = segment.layers[u].backward->both(unpacked(graph), weights_of(u), arrived[0]);
    drop_unwanted(planned, results);
    return results;
  }
  Edges wanted = graph.inputs;
  add_leaf_edges(weights_of(u), wanted);
  return run_backward(graph, arrived, wanted, Graph::free, engine);
}

}  // namespace pp::model::detail
