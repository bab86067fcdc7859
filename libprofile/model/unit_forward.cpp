#include "libprofile/model/unit_forward.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <utility>

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

Tensors UnitForward::run(std::size_t u, Tensors inputs, LayerGraph* graph) const {
  const BoundLayer& layer = segment.units[u];
  if (graph == nullptr) return compute(u, inputs);
  if (!layer.backward || context.autocast) return record(u, std::move(inputs), *graph);
  const Tensors outputs = compute(u, inputs);
  for (const at::Tensor& saved : layer.backward->saves(inputs, outputs))
    graph->saved.emplace_back(saved, /*is_output=*/false);
  return outputs;
}

Tensors UnitForward::compute(std::size_t u, TensorSpan inputs) const {
  const c10::AutoGradMode no_grad(false);
  Tensors outputs = call(u, inputs);
  for (at::Tensor& output : outputs) output = dense(output).detach();
  return outputs;
}

Tensors UnitForward::record(std::size_t u, Tensors inputs, LayerGraph& graph) const {
  const Unit& unit = segment.plan.units[u];
  const c10::AutoGradMode grad(true);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    graph.inputs.emplace_back();
    if (unit.source_gradient[i]) inputs[i] = cut_input(inputs[i], graph.inputs.back());
  }
  Tensors outputs = call(u, inputs);
  for (at::Tensor& output : outputs) {
    output = dense(output);
    graph.outputs.push_back(output_edge(output));
    output = output.detach();
  }
  return outputs;
}

Tensors UnitForward::call(std::size_t u, TensorSpan inputs) const {
  const Unit& unit = segment.plan.units[u];
  const std::size_t position = static_cast<std::size_t>(unit.position);
  LayerContext layer{.mode = context.mode,
                     .key = context.key,
                     .layer = unit.layer,
                     .generator = context.generator,
                     .buffers = {},
                     .statistics = &statistics,
                     .dtype = context.dtype};
  if (position < context.buffers.size()) layer.buffers = context.buffers[position];
  const Autocast autocast(context.autocast, inputs[0].device().type());
  return segment.units[u].forward(inputs, weights.of(unit.position), layer);
}

}  // namespace pp::model::detail
