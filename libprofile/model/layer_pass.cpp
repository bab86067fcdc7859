#include "libprofile/model/layer_pass.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/determinism.h"

namespace pp::model::detail {

namespace {

using torch::autograd::Edge;
using torch::autograd::variable_list;

/// Stands where a leaf would stand, without holding its tensor. The engine captures gradients on the way into
/// it.
struct Boundary : torch::autograd::Node {
  variable_list apply(variable_list&& /*gradients*/) override {
    throw Error(ErrorKind::internal, "layer graph: a gradient passed the layer's input");
  }
};

/// Where no path leads back to an input (a layer that detaches it, or makes integers of it), its gradient is
/// zero: whoever made it waits for one.
void fill_unreached(const Edges& wanted, Tensors& results) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].is_valid() || results[i].defined()) continue;
    auto* start = dynamic_cast<Boundary*>(wanted[i].function.get());
    if (start != nullptr) results[i] = start->input_metadata(0).zeros_like();
  }
}

bool has_default_strides(const at::Tensor& tensor) {
  std::int64_t stride = 1;
  for (std::int64_t d = tensor.dim(); d-- > 0;) {
    if (tensor.stride(d) != stride) return false;
    stride *= tensor.size(d);
  }
  return true;
}

bool has_strides(const at::Tensor& tensor, at::MemoryFormat format) {
  return format == at::MemoryFormat::Contiguous
             ? has_default_strides(tensor)
             : tensor.strides() == at::IntArrayRef(c10::get_channels_last_strides_2d(tensor.sizes()));
}

}  // namespace

at::Tensor cut_input(const at::Tensor& tensor, Edge& edge) {
  at::Tensor start = tensor.detach();
  edge = Edge(std::make_shared<Boundary>(), 0);
  torch::autograd::create_gradient_edge(start, edge.function);
  return start;
}

Edge output_edge(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor) : Edge();
}

at::Tensor dense(const at::Tensor& tensor, MemoryFormat format) {
  const at::MemoryFormat wanted = memory_format(format, tensor.dim());
  if (has_strides(tensor, wanted) && tensor.storage().nbytes() == tensor.nbytes()) return tensor;
  return tensor.clone(wanted);
}

at::Tensor arranged(const at::Tensor& tensor, MemoryFormat format) {
  const at::MemoryFormat wanted = memory_format(format, tensor.dim());
  return has_strides(tensor, wanted) ? tensor : tensor.clone(wanted);
}

Tensors run_backward(const LayerGraph& graph, TensorSpan output_gradients, const Edges& wanted, Graph after,
                     EngineCall& call) {
  call.clear();
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (!graph.outputs[i].is_valid() || !output_gradients[i].defined()) continue;
    call.roots.push_back(graph.outputs[i]);
    call.gradients.push_back(output_gradients[i]);
  }
  for (const Edge& edge : wanted) {
    if (edge.is_valid()) call.wanted.push_back(edge);
  }
  Tensors results(wanted.size());
  if (call.wanted.empty()) return results;
  if (call.roots.empty()) {
    fill_unreached(wanted, results);
    return results;
  }
  variable_list found = torch::autograd::Engine::get_default_engine().execute(
      call.roots, call.gradients, after == Graph::keep, /*create_graph=*/false, /*accumulate_grad=*/false,
      call.wanted);
  call.clear();
  for (std::size_t i = 0, next = 0; i < wanted.size(); ++i) {
    if (wanted[i].is_valid()) results[i] = std::move(found[next++]);
  }
  fill_unreached(wanted, results);
  return results;
}

void add_leaf_edges(TensorSpan leaves, Edges& edges) {
  for (const at::Tensor& leaf : leaves) edges.push_back(torch::autograd::impl::gradient_edge(leaf));
}

namespace {

/// Autocast of the calling thread. Casts of weights are not cached: the cache is one for all threads.
class Autocast {
 public:
  Autocast(std::optional<at::ScalarType> type, at::DeviceType device) : device_(device), on_(type.has_value()) {
    if (!on_) return;
    at::autocast::set_autocast_cache_enabled(false);
    at::autocast::set_autocast_dtype(device, *type);
    at::autocast::set_autocast_enabled(device, true);
  }
  ~Autocast() {
    if (on_) at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  bool on_;
};

}  // namespace

Tensors LayerForward::run(std::size_t u, Tensors inputs, LayerGraph* graph) const {
  if (graph == nullptr) return compute(u, inputs, nullptr);
  if (!writes_backward(segment.layers[u], inputs)) return record(u, std::move(inputs), *graph);
  Tensors saved;
  const Tensors outputs = compute(u, inputs, &saved);
  graph->written = true;
  for (const at::Tensor& tensor : saved) graph->saved.emplace_back(tensor, /*is_output=*/false);
  return outputs;
}

bool LayerForward::writes_backward(const BoundLayer& layer, TensorSpan inputs) const {
  if (!layer.backward || context.autocast || context.mode == Mode::evaluation) return false;
  return !layer.backward->applies || layer.backward->applies(inputs);
}

Tensors LayerForward::compute(std::size_t u, TensorSpan inputs, Tensors* saved) const {
  const c10::AutoGradMode no_grad(false);
  Tensors outputs = call(u, inputs, saved);
  for (at::Tensor& output : outputs) output = dense(output, segment.format).detach();
  return outputs;
}

Tensors LayerForward::record(std::size_t u, Tensors inputs, LayerGraph& graph) const {
  const PlannedLayer& planned = segment.plan.order[u];
  const c10::AutoGradMode grad(true);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    graph.inputs.emplace_back();
    if (planned.source_gradient[i]) inputs[i] = cut_input(inputs[i], graph.inputs.back());
  }
  Tensors outputs = call(u, inputs, nullptr);
  for (at::Tensor& output : outputs) {
    output = dense(output, segment.format);
    graph.outputs.push_back(output_edge(output));
    output = output.detach();
  }
  return outputs;
}

Tensors LayerForward::call(std::size_t u, TensorSpan inputs, Tensors* saved) const {
  const PlannedLayer& planned = segment.plan.order[u];
  const std::size_t position = static_cast<std::size_t>(planned.position);
  LayerContext layer{.mode = context.mode,
                     .key = context.key,
                     .layer = planned.layer,
                     .generator = context.generator,
                     .buffers = {},
                     .statistics = &statistics,
                     .dtype = context.dtype,
                     .saved = saved,
                     .piece = context.piece,
                     .label_shares = context.label_shares};
  if (position < context.caches.size()) layer.cache = &context.caches[position];
  if (position < context.buffers.size()) layer.buffers = context.buffers[position];
  const Autocast autocast(context.autocast, inputs[0].device().type());
  const Determinism determinism(segment.layers[u].deterministic);
  return segment.layers[u].forward(inputs, weights.of(planned.position), layer);
}

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
