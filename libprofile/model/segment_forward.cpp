#include <string>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/pass_state.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"
#include "libprofile/model/unit_forward.h"

namespace pp::model {
namespace {

using detail::LayerGraph;
using detail::SegmentPlan;
using detail::Unit;

/// One forward of the segment: the tensors that still have a reader, and what the pass keeps of each unit.
class Forwarding {
 public:
  Forwarding(const SegmentPlan& plan, const detail::UnitForward& forward, bool record)
      : plan_(plan),
        forward_(forward),
        record_(record),
        tensors_(static_cast<std::size_t>(plan.tensor_count())) {}

  void receive(std::span<const at::Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) tensors_[i] = inputs[i].detach();
  }

  /// What the unit leaves for backward; empty when it has none.
  LayerGraph run(const Unit& unit) {
    const bool backward = record_ && unit.backward;
    LayerGraph graph;
    std::vector<at::Tensor> arguments;
    for (const int source : unit.sources) arguments.push_back(tensor(source));
    if (backward && unit.recompute) graph.kept_inputs = arguments;
    const std::vector<at::Tensor> outputs =
        forward_.run(unit, std::move(arguments), backward && !unit.recompute ? &graph : nullptr);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t number = static_cast<std::size_t>(unit.first_output) + i;
      if (plan_.leaves[number] || plan_.last_use[number] >= 0) tensors_[number] = outputs[i];
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
  const SegmentPlan& plan_;
  const detail::UnitForward& forward_;
  bool record_;
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
  const detail::UnitForward unit_forward{*model_, *weights, context, pass.statistics};
  const bool record = context.mode == Mode::training && context.record == Record::graph;
  Forwarding forwarding(*plan_, unit_forward, record);
  forwarding.receive(inputs);
  detail::PassState state{weights, context, {}, {}};
  state.context.buffers = {};
  for (std::size_t u = 0; u < plan_->units.size(); ++u) {
    const Unit& unit = plan_->units[u];
    const auto name = [&] { return detail::unit_name(*model_, unit); };
    if (observer != nullptr) observer->begin(unit.position, LayerObserver::Phase::forward);
    state.graphs.push_back(detail::guarded(name, [&] { return forwarding.run(unit); }));
    if (observer != nullptr) observer->end(unit.position, LayerObserver::Phase::forward);
    forwarding.release(u);
  }
  for (const int number : plan_->output_tensor) pass.outputs.push_back(forwarding.tensor(number));
  if (plan_->with_loss) pass.loss = forwarding.tensor(plan_->units.back().first_output);
  if (!record) return pass;
  if (plan_->with_loss) state.loss_options = pass.loss.options();
  pass.state_ = std::make_unique<detail::PassState>(std::move(state));
  return pass;
}

}  // namespace pp::model
