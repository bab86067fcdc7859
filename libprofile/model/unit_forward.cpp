#include "libprofile/model/unit_forward.h"

#include <c10/core/GradMode.h>

#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::detail {

std::vector<at::Tensor> UnitForward::run(const Unit& unit, std::vector<at::Tensor> inputs,
                                         LayerGraph* graph) const {
  const c10::AutoGradMode grad_mode(graph != nullptr);
  for (std::size_t i = 0; graph != nullptr && i < inputs.size(); ++i) {
    graph->inputs.emplace_back();
    if (unit.source_gradient[i]) inputs[i] = cut_input(inputs[i], graph->inputs.back());
  }
  std::vector<at::Tensor> outputs = unit.layer < 0 ? loss(inputs) : layer(unit, inputs, graph);
  for (at::Tensor& output : outputs) {
    output = dense(output);
    if (graph != nullptr) graph->outputs.push_back(output_edge(output));
    output = output.detach();
  }
  return outputs;
}

std::vector<at::Tensor> UnitForward::loss(std::span<const at::Tensor> inputs) const {
  const LossSpec& loss = *model.graph.loss;
  return {find_loss_forward(loss.op)(loss.attributes, inputs[0], inputs[1])};
}

std::vector<at::Tensor> UnitForward::layer(const Unit& unit, std::span<const at::Tensor> inputs,
                                           LayerGraph* graph) const {
  const Layer& layer = model.graph.layers[static_cast<std::size_t>(unit.layer)];
  const std::size_t position = static_cast<std::size_t>(unit.position);
  LayerContext layer_context{.mode = context.mode,
                             .key = context.key,
                             .layer = unit.layer,
                             .generator = context.generator,
                             .buffers = {},
                             .statistics = &statistics};
  if (position < context.buffers.size()) layer_context.buffers = context.buffers[position];
  const ops::Row* row = ops::find(layer.op);
  if (row == nullptr) throw Error(ErrorKind::data, "this operation can be planned, but not run");
  if (graph != nullptr) graph->weights_with_inputs = row->weight_gradient == ops::WeightGradient::with_input;
  return row->forward(layer.attributes, inputs, weights.layers[position], layer_context);
}

}  // namespace pp::model::detail
