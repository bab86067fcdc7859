#include "libprofile/model/unit_forward.h"

#include <c10/core/GradMode.h>

namespace pp::model::detail {

Tensors UnitForward::run(std::size_t u, Tensors inputs, LayerGraph* graph) const {
  const Unit& unit = segment.plan.units[u];
  const std::size_t position = static_cast<std::size_t>(unit.position);
  const c10::AutoGradMode grad_mode(graph != nullptr);
  for (std::size_t i = 0; graph != nullptr && i < inputs.size(); ++i) {
    graph->inputs.emplace_back();
    if (unit.source_gradient[i]) inputs[i] = cut_input(inputs[i], graph->inputs.back());
  }
  LayerContext layer{.mode = context.mode,
                     .key = context.key,
                     .layer = unit.layer,
                     .generator = context.generator,
                     .buffers = {},
                     .statistics = &statistics};
  if (position < context.buffers.size()) layer.buffers = context.buffers[position];
  Tensors outputs = segment.units[u].forward(inputs, weights.of(unit.position), layer);
  for (at::Tensor& output : outputs) {
    output = dense(output);
    if (graph != nullptr) graph->outputs.push_back(output_edge(output));
    output = output.detach();
  }
  return outputs;
}

}  // namespace pp::model::detail
