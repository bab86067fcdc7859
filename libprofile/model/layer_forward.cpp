#include "libprofile/model/layer_forward.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "libprofile/model/determinism.h"

namespace pp::model::detail {
namespace {

/// Of the calling thread. Casts of weights are not cached: the cache is one for all threads.
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
  if (!layer.backward || context.autocast) return false;
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
                     .piece = context.piece};
  if (position < context.caches.size()) layer.cache = &context.caches[position];
  if (position < context.buffers.size()) layer.buffers = context.buffers[position];
  const Autocast autocast(context.autocast, inputs[0].device().type());
  const Determinism determinism(segment.layers[u].deterministic);
  return segment.layers[u].forward(inputs, weights.of(planned.position), layer);
}

}  // namespace pp::model::detail
