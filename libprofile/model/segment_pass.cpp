#include "libprofile/model/segment_pass.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "libprofile/model/comparison.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/layer_pass.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model::detail {

std::unique_ptr<PassState> PassStates::take() {
  {
    const std::lock_guard held(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<PassState> state = std::move(free_.back());
      free_.pop_back();
      return state;
    }
  }
  auto state = std::make_unique<PassState>();
  state->graphs.resize(layers_);
  state->tensors.resize(tensors_);
  state->sums.resize(tensors_);
  return state;
}

void PassStates::give(std::unique_ptr<PassState> state) {
  state->weights.reset();
  for (LayerGraph& graph : state->graphs) graph = LayerGraph();
  const std::lock_guard held(mutex_);
  free_.push_back(std::move(state));
}

void PassStates::give(std::vector<BatchStatistics> statistics) {
  statistics.clear();
  const std::lock_guard held(mutex_);
  if (!free_.empty()) free_.back()->statistics = std::move(statistics);
}

}  // namespace pp::model::detail

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
  const bool may_record = context.mode == Mode::training || Comparison::here() != nullptr;
  const bool record = may_record && context.record == Record::graph;
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

namespace {

using detail::GradientSum;
using detail::LayerGraph;
using detail::PlannedLayer;
using detail::SegmentPlan;
using Phase = LayerObserver::Phase;

detail::PassState& state_of(const std::unique_ptr<detail::PassState>& state) {
  if (state) return *state;
  throw Error(ErrorKind::internal,
              "segment: backward of a pass without graphs; run forward in training mode first");
}

/// One walk from the last layer to the first.
class Backwarding {
 public:
  Backwarding(const ResolvedModel& model, const detail::BoundSegment& segment, detail::PassState& state,
              LayerObserver* observer)
      : model_(model),
        segment_(segment),
        plan_(segment.plan),
        state_(state),
        layer_{segment, *state.weights, state.call},
        observer_(observer) {}
  ~Backwarding() {
    for (GradientSum& sum : state_.sums) sum.take();
  }
  Backwarding(const Backwarding&) = delete;
  Backwarding& operator=(const Backwarding&) = delete;

  void receive(std::span<Tensors> output_gradients, double loss_weight, at::Tensor loss_gradient) {
    if (output_gradients.size() != plan_.outputs.size()) {
      throw Error(ErrorKind::internal, "segment: got gradients of " + std::to_string(output_gradients.size()) +
                                           " outputs, needs " + std::to_string(plan_.outputs.size()));
    }
    for (std::size_t k = 0; k < output_gradients.size(); ++k) {
      for (at::Tensor& gradient : output_gradients[k])
        sum(plan_.output_tensor[k]).add(detail::dense(std::exchange(gradient, {}), segment_.format));
    }
    if (!plan_.with_loss) return;
    no_loss_ = !loss_gradient.defined() && loss_weight == 0;
    if (!loss_gradient.defined()) loss_gradient = at::full({}, loss_weight, state_.loss_options);
    sum(plan_.order.back().first_output).add(std::move(loss_gradient));
  }

  void backward(Gradients& gradients) {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const PlannedLayer& planned = plan_.order[u];
      const Tensors arrived = take_output_gradients(planned);
      observed(planned, Phase::backward, [&] {
        recompute(u, graph);
        WeightSums sums = sums_of(planned, gradients);
        add_input_gradients(planned, layer_.whole(u, graph, arrived, sums));
      });
    });
  }

  void input_gradient() {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const PlannedLayer& planned = plan_.order[u];
      Tensors arrived = take_output_gradients(planned);
      if (!detail::wants_input_gradient(planned)) {
        graph.output_gradients = std::move(arrived);
        return;
      }
      observed(planned, Phase::input_gradient, [&] {
        recompute(u, graph);
        add_input_gradients(planned, layer_.inputs(u, graph, std::move(arrived)));
      });
    });
  }

  void weight_gradient(Gradients& gradients) {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const PlannedLayer& planned = plan_.order[u];
      observed(planned, Phase::weight_gradient, [&] {
        recompute(u, graph);
        WeightSums sums = sums_of(planned, gradients);
        layer_.parameters(u, graph, sums);
      });
    });
  }

  /// One per input of the segment.
  Tensors input_gradients() {
    Tensors gradients;
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      gradients.push_back(state_.sums[i].take());
      if (plan_.input_gradient[i] && !gradients.back().defined()) {
        throw Error(ErrorKind::internal, "segment: no gradient reached input " + std::to_string(i) +
                                             "; pass the gradients of all outputs that have consumers");
      }
    }
    return gradients;
  }

 private:
  GradientSum& sum(int tensor) { return state_.sums[static_cast<std::size_t>(tensor)]; }

  WeightSums sums_of(const PlannedLayer& planned, Gradients& gradients) const {
    const auto layer = static_cast<std::size_t>(planned.position);
    if (planned.layer < 0) return {{}, {}, {}};
    const TensorSpan places = gradients.places.empty() ? TensorSpan() : TensorSpan(gradients.places[layer]);
    return {state_.weights->layers[layer], gradients.layers[layer], places};
  }

  template <class Visit>
  void for_each_unit(Visit&& visit) {
    const c10::AutoGradMode no_grad(false);
    for (std::size_t u = plan_.order.size(); u-- > 0;) {
      const PlannedLayer& planned = plan_.order[u];
      if (state_.graphs[u].empty()) continue;
      detail::guarded([&] { return detail::layer_name(model_, planned); }, [&] { visit(u, state_.graphs[u]); });
    }
  }

  template <class Body>
  void observed(const PlannedLayer& planned, Phase phase, Body&& body) {
    if (observer_ != nullptr) observer_->begin(planned.position, phase);
    body();
    if (observer_ != nullptr) observer_->end(planned.position, phase);
  }

  /// Runs the forward of a recomputed layer again, once: with its key and weights, so that it draws the same
  /// numbers. Its statistics are those of the first time.
  void recompute(std::size_t u, LayerGraph& graph) {
    Tensors inputs = std::exchange(graph.kept_inputs, {});
    if (inputs.empty()) return;
    std::vector<BatchStatistics> repeated;
    detail::LayerForward{segment_, *state_.weights, state_.context, repeated}.run(u, std::move(inputs), &graph);
  }

  /// All consumers of the layer's outputs have been visited before.
  Tensors take_output_gradients(const PlannedLayer& planned) {
    Tensors gradients;
    for (int output = 0; output < planned.output_count; ++output) {
      gradients.push_back(sum(planned.first_output + output).take());
    }
    return gradients;
  }

  void add_input_gradients(const PlannedLayer& planned, TensorSpan results) {
    for (std::size_t i = 0; i < planned.sources.size(); ++i) {
      if (!results[i].defined()) continue;
      const at::Tensor& gradient = no_loss_ && planned.layer < 0 ? at::zeros_like(results[i]) : results[i];
      sum(planned.sources[i]).add(detail::dense(gradient, segment_.format));
    }
  }

  const ResolvedModel& model_;
  const detail::BoundSegment& segment_;
  const SegmentPlan& plan_;
  detail::PassState& state_;
  detail::LayerBackward layer_;
  LayerObserver* observer_;
  bool no_loss_ = false;  ///< the loss weighs 0, and may be no number
};

}  // namespace

Tensors Segment::backward(Pass& pass, std::span<Tensors> output_gradients, double loss_weight,
                          Gradients& gradients, LayerObserver* observer) const {
  const UseKernels kernels(kernels_.get());
  Tensors result;
  {
    Backwarding walk(*model_, *bound_, state_of(pass.state_), observer);
    walk.receive(output_gradients, loss_weight, pass.loss_gradient);
    walk.backward(gradients);
    result = walk.input_gradients();
  }
  states_->give(std::move(pass.state_));
  return result;
}

Tensors Segment::input_gradient(Pass& pass, std::span<Tensors> output_gradients, double loss_weight,
                                LayerObserver* observer) const {
  const UseKernels kernels(kernels_.get());
  Backwarding walk(*model_, *bound_, state_of(pass.state_), observer);
  walk.receive(output_gradients, loss_weight, pass.loss_gradient);
  walk.input_gradient();
  return walk.input_gradients();
}

void Segment::weight_gradient(Pass& pass, Gradients& gradients, LayerObserver* observer) const {
  const UseKernels kernels(kernels_.get());
  Backwarding(*model_, *bound_, state_of(pass.state_), observer).weight_gradient(gradients);
  states_->give(std::move(pass.state_));
}

void Segment::reuse(std::vector<BatchStatistics> statistics) const { states_->give(std::move(statistics)); }

}  // namespace pp::model
