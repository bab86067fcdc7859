#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/pass_state.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model {
namespace {

using detail::LayerGraph;
using detail::SegmentPlan;
using detail::Unit;

/// One forward of the segment: the tensors that still have a reader, and what the layers leave behind.
class Forwarding {
 public:
  Forwarding(const ResolvedModel& model, const SegmentPlan& plan, const Weights& weights,
             const PassContext& context, std::vector<BatchStatistics>& statistics)
      : model_(model),
        plan_(plan),
        weights_(weights),
        context_(context),
        statistics_(statistics),
        tensors_(static_cast<std::size_t>(plan.tensor_count())) {}

  void receive(std::span<const at::Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) tensors_[i] = inputs[i].detach();
  }

  /// Runs the unit; a graph comes back when it will be needed.
  LayerGraph run(const Unit& unit) {
    const bool record = unit.backward && context_.mode == Mode::training && context_.record == Record::graph;
    const c10::AutoGradMode grad_mode(record);
    LayerGraph graph;
    const std::vector<at::Tensor> inputs = arguments(unit, record, graph);
    const std::vector<at::Tensor> outputs = unit.layer < 0 ? loss(inputs) : layer(unit, inputs, graph);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor output = detail::dense(outputs[i]);
      if (record) graph.outputs.push_back(detail::output_edge(output));
      const std::size_t tensor = static_cast<std::size_t>(unit.first_output) + i;
      if (plan_.leaves[tensor] || plan_.last_use[tensor] >= 0) tensors_[tensor] = output.detach();
    }
    return graph;
  }

  /// Lets go of the tensors whose last reader here was unit `u`.
  void release(std::size_t u) {
    for (const int source : plan_.units[u].sources) {
      const std::size_t tensor = static_cast<std::size_t>(source);
      if (plan_.last_use[tensor] == static_cast<int>(u) && !plan_.leaves[tensor]) tensors_[tensor].reset();
    }
  }

  at::Tensor tensor(int number) const { return tensors_[static_cast<std::size_t>(number)]; }

 private:
  std::vector<at::Tensor> arguments(const Unit& unit, bool record, LayerGraph& graph) const {
    std::vector<at::Tensor> arguments;
    for (std::size_t i = 0; i < unit.sources.size(); ++i) {
      arguments.push_back(tensor(unit.sources[i]));
      if (!record) continue;
      graph.inputs.emplace_back();
      if (unit.source_gradient[i]) arguments.back() = detail::cut_input(arguments.back(), graph.inputs.back());
    }
    return arguments;
  }

  std::vector<at::Tensor> loss(std::span<const at::Tensor> inputs) const {
    const LossSpec& loss = *model_.graph.loss;
    return {find_loss_forward(loss.op)(loss.attributes, inputs[0], inputs[1])};
  }

  std::vector<at::Tensor> layer(const Unit& unit, std::span<const at::Tensor> inputs, LayerGraph& graph) const {
    const Layer& layer = model_.graph.layers[static_cast<std::size_t>(unit.layer)];
    const std::size_t position = static_cast<std::size_t>(unit.position);
    LayerContext context{.mode = context_.mode,
                         .key = context_.key,
                         .layer = unit.layer,
                         .generator = context_.generator,
                         .buffers = {},
                         .statistics = &statistics_};
    if (position < context_.buffers.size()) context.buffers = context_.buffers[position];
    const ops::Row* row = ops::find(layer.op);
    if (row == nullptr) throw Error(ErrorKind::data, "this operation can be planned, but not run");
    graph.weights_with_inputs = row->weight_gradient == ops::WeightGradient::with_input;
    return row->forward(layer.attributes, inputs, weights_.layers[position], context);
  }

  const ResolvedModel& model_;
  const SegmentPlan& plan_;
  const Weights& weights_;
  const PassContext& context_;
  std::vector<BatchStatistics>& statistics_;
  std::vector<at::Tensor> tensors_;
};

void check_inputs(const SegmentPlan& plan, const Weights& weights, std::span<const at::Tensor> inputs) {
  if (inputs.size() != plan.inputs.size()) {
    throw Error(ErrorKind::internal, "segment: got " + std::to_string(inputs.size()) + " inputs, needs " +
                                         std::to_string(plan.inputs.size()));
  }
  if (weights.layers.size() != plan.layers.size()) {
    throw Error(ErrorKind::internal, "segment: got weights of " + std::to_string(weights.layers.size()) +
                                         " layers, needs " + std::to_string(plan.layers.size()));
  }
}

}  // namespace

Pass Segment::forward(std::shared_ptr<const Weights> weights, std::span<const at::Tensor> inputs,
                      const PassContext& context, LayerObserver* observer) const {
  check_inputs(*plan_, *weights, inputs);
  Pass pass;
  Forwarding forwarding(*model_, *plan_, *weights, context, pass.statistics);
  forwarding.receive(inputs);
  std::vector<LayerGraph> graphs;
  for (std::size_t u = 0; u < plan_->units.size(); ++u) {
    const Unit& unit = plan_->units[u];
    const auto name = [&] { return detail::unit_name(*model_, unit); };
    if (observer != nullptr) observer->begin(unit.position, LayerObserver::Phase::forward);
    graphs.push_back(detail::guarded(name, [&] { return forwarding.run(unit); }));
    if (observer != nullptr) observer->end(unit.position, LayerObserver::Phase::forward);
    forwarding.release(u);
  }
  for (const int number : plan_->output_tensor) pass.outputs.push_back(forwarding.tensor(number));
  if (plan_->with_loss) pass.loss = forwarding.tensor(plan_->units.back().first_output);
  if (context.mode == Mode::training && context.record == Record::graph) {
    pass.state_ =
        std::make_unique<detail::PassState>(detail::PassState{std::move(weights), std::move(graphs), {}});
    if (plan_->with_loss) pass.state_->loss_options = pass.loss.options();
  }
  return pass;
}

}  // namespace pp::model
