#include <string>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/layer_forward.h"
#include "libprofile/model/pass_state.h"
#include "libprofile/model/segment.h"

namespace pp::model {
namespace {

using detail::LayerGraph;
using detail::PlannedLayer;
using detail::SegmentPlan;

/// One forward of the segment: the tensors that still have a reader, and what the pass keeps of each layer.
class Forwarding {
 public:
  Forwarding(const detail::LayerForward& forward, bool record, std::vector<at::Tensor>& tensors)
      : plan_(forward.segment.plan), forward_(forward), record_(record), tensors_(tensors) {}
  ~Forwarding() {
    for (at::Tensor& tensor : tensors_) tensor.reset();
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

  void receive(Tensors inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      tensors_[i] = detail::arranged(std::exchange(inputs[i], at::Tensor()).detach(), forward_.segment.format);
  }

  /// Returns the layer's outputs. What it leaves for backward goes to `graph`; nothing when it has none.
  Tensors run(std::size_t u, LayerGraph& graph) {
    const PlannedLayer& planned = plan_.order[u];
    const bool backward = record_ && planned.backward;
    Tensors arguments;
    for (const int source : planned.sources) arguments.push_back(tensor(source));
    if (backward && planned.recompute) graph.kept_inputs = arguments;
    release(u);
    Tensors outputs = forward_.run(u, std::move(arguments), backward && !planned.recompute ? &graph : nullptr);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t number = static_cast<std::size_t>(planned.first_output) + i;
      if (plan_.leaves[number] || plan_.last_use[number] >= 0) tensors_[number] = outputs[i];
    }
    return outputs;
  }

  at::Tensor tensor(int number) const { return tensors_[static_cast<std::size_t>(number)]; }

 private:
  /// Leaves the tensors whose last reader here is layer `u` to it.
  void release(std::size_t u) {
    for (const int source : plan_.order[u].sources) {
      const std::size_t tensor = static_cast<std::size_t>(source);
      if (plan_.last_use[tensor] == static_cast<int>(u) && !plan_.leaves[tensor]) tensors_[tensor].reset();
    }
  }

  const SegmentPlan& plan_;
  const detail::LayerForward& forward_;
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
  return forward(std::move(weights), Tensors(inputs.begin(), inputs.end()), context, observer);
}

Pass Segment::forward(std::shared_ptr<const Weights> weights, Tensors&& inputs, const PassContext& context,
                      LayerObserver* observer) const {
  const UseKernels kernels(kernels_.get());
  const SegmentPlan& plan = bound_->plan;
  check_inputs(plan, *weights, inputs);
  Pass pass;
  std::unique_ptr<detail::PassState> state = states_->take();
  pass.statistics = std::exchange(state->statistics, {});
  const bool record = context.mode == Mode::training && context.record == Record::graph;
  {
    const detail::LayerForward layer_forward{*bound_, *weights, context, pass.statistics};
    Forwarding forwarding(layer_forward, record, state->tensors);
    forwarding.receive(std::move(inputs));
    for (std::size_t u = 0; u < plan.order.size(); ++u) {
      const PlannedLayer& planned = plan.order[u];
      const auto name = [&] { return detail::layer_name(*model_, planned); };
      if (observer != nullptr) observer->begin(planned.position, LayerObserver::Phase::forward);
      detail::guarded(name, [&] {
        const Tensors outputs = forwarding.run(u, state->graphs[u]);
        if (observer != nullptr) observer->made(planned.position, outputs);
      });
      if (observer != nullptr) observer->end(planned.position, LayerObserver::Phase::forward);
    }
    for (const int number : plan.output_tensor) pass.outputs.push_back(forwarding.tensor(number));
    if (plan.with_loss) pass.loss = forwarding.tensor(plan.order.back().first_output);
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
