#include <string>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/pass_state.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/unit_forward.h"

namespace pp::model {
namespace {

using detail::LayerGraph;
using detail::SegmentPlan;
using detail::Unit;

/// One forward of the segment: the tensors that still have a reader, and what the pass keeps of each unit.
class Forwarding {
 public:
  Forwarding(const detail::UnitForward& forward, bool record, std::vector<at::Tensor>& tensors)
      : plan_(forward.segment.plan), forward_(forward), record_(record), tensors_(tensors) {}
  ~Forwarding() {
    for (at::Tensor& tensor : tensors_) tensor.reset();
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  void receive(TensorSpan inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) tensors_[i] = inputs[i].detach();
  }

  /// What the unit leaves for backward goes to `graph`; nothing when it has none.
  void run(std::size_t u, LayerGraph& graph) {
    const Unit& unit = plan_.units[u];
    const bool backward = record_ && unit.backward;
    Tensors arguments;
    for (const int source : unit.sources) arguments.push_back(tensor(source));
    if (backward && unit.recompute) graph.kept_inputs = arguments;
    const Tensors outputs =
        forward_.run(u, std::move(arguments), backward && !unit.recompute ? &graph : nullptr);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t number = static_cast<std::size_t>(unit.first_output) + i;
      if (plan_.leaves[number] || plan_.last_use[number] >= 0) tensors_[number] = outputs[i];
    }
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
  std::vector<at::Tensor>& tensors_;
};

void check_inputs(const SegmentPlan& plan, const Weights& weights, TensorSpan inputs) {
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

Pass Segment::forward(std::shared_ptr<const Weights> weights, TensorSpan inputs, const PassContext& context,
                      LayerObserver* observer) const {
  const SegmentPlan& plan = bound_->plan;
  check_inputs(plan, *weights, inputs);
  Pass pass;
  std::unique_ptr<detail::PassState> state = states_->take();
  pass.statistics = std::exchange(state->statistics, {});
  const bool record = context.mode == Mode::training && context.record == Record::graph;
  {
    const detail::UnitForward unit_forward{*bound_, *weights, context, pass.statistics};
    Forwarding forwarding(unit_forward, record, state->tensors);
    forwarding.receive(inputs);
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      const Unit& unit = plan.units[u];
      const auto name = [&] { return detail::unit_name(*model_, unit); };
      if (observer != nullptr) observer->begin(unit.position, LayerObserver::Phase::forward);
      detail::guarded(name, [&] { forwarding.run(u, state->graphs[u]); });
      if (observer != nullptr) observer->end(unit.position, LayerObserver::Phase::forward);
      forwarding.release(u);
    }
    for (const int number : plan.output_tensor) pass.outputs.push_back(forwarding.tensor(number));
    if (plan.with_loss) pass.loss = forwarding.tensor(plan.units.back().first_output);
  }
  if (!record) {
    states_->give(std::move(state));
    return pass;
  }
  if (plan.with_loss) state->loss_options = pass.loss.options();
  state->weights = std::move(weights);
  state->context = context;
  pass.state_ = std::move(state);
  return pass;
}

}  // namespace pp::model
