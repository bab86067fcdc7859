#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/gradient_sum.h"
#include "libprofile/model/pass_state.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"
#include "libprofile/model/unit_forward.h"

namespace pp::model {
namespace {

using detail::Edges;
using detail::GradientSum;
using detail::Graph;
using detail::LayerGraph;
using detail::SegmentPlan;
using detail::Unit;
using Phase = LayerObserver::Phase;

detail::PassState& state_of(const std::unique_ptr<detail::PassState>& state) {
  if (state) return *state;
  throw Error(ErrorKind::internal,
              "segment: backward of a pass without graphs; run forward in training mode first");
}

/// One walk from the last unit to the first.
class Backwarding {
 public:
  Backwarding(const ResolvedModel& model, const detail::BoundSegment& segment, detail::PassState& state,
              LayerObserver* observer)
      : model_(model), segment_(segment), plan_(segment.plan), state_(state), observer_(observer) {}
  ~Backwarding() {
    for (GradientSum& sum : state_.sums) sum.take();
  }
  Backwarding(const Backwarding&) = delete;
  Backwarding& operator=(const Backwarding&) = delete;

  void receive(std::span<const Tensors> output_gradients, double loss_weight) {
    if (output_gradients.size() != plan_.outputs.size()) {
      throw Error(ErrorKind::internal, "segment: got gradients of " + std::to_string(output_gradients.size()) +
                                           " outputs, needs " + std::to_string(plan_.outputs.size()));
    }
    for (std::size_t k = 0; k < output_gradients.size(); ++k) {
      for (const at::Tensor& gradient : output_gradients[k])
        sum(plan_.output_tensor[k]).add(detail::dense(gradient));
    }
    if (plan_.with_loss) {
      sum(plan_.units.back().first_output).add(at::full({}, loss_weight, state_.loss_options));
    }
  }

  void backward(Gradients& gradients) {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const Unit& unit = plan_.units[u];
      const Tensors arrived = take_output_gradients(unit);
      observed(unit, Phase::backward, [&] {
        recompute(u, graph);
        Tensors weight_gradients = inputs_and_weights(unit, graph, arrived);
        add_weight_gradients(unit, weight_gradients, gradients);
      });
    });
  }

  void input_gradient() {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const Unit& unit = plan_.units[u];
      Tensors arrived = take_output_gradients(unit);
      if (!wants_input_gradient(unit)) {
        graph.output_gradients = std::move(arrived);
        return;
      }
      observed(unit, Phase::input_gradient, [&] {
        recompute(u, graph);
        if (weights_of(unit).empty()) {
          add_input_gradients(unit, run(graph, arrived, graph.inputs, Graph::free));
          graph = LayerGraph();
        } else if (segment_.units[u].weight_gradient == WeightGradient::with_input) {
          Tensors weight_gradients = inputs_and_weights(unit, graph, arrived);
          graph.weight_gradients = std::move(weight_gradients);
        } else {
          add_input_gradients(unit, run(graph, arrived, graph.inputs, Graph::keep));
          graph.output_gradients = std::move(arrived);
        }
      });
    });
  }

  void weight_gradient(Gradients& gradients) {
    for_each_unit([&](std::size_t u, LayerGraph& graph) {
      const Unit& unit = plan_.units[u];
      observed(unit, Phase::weight_gradient, [&] {
        Tensors results = std::move(graph.weight_gradients);
        if (results.empty()) {
          recompute(u, graph);
          Edges weights;
          detail::add_leaf_edges(weights_of(unit), weights);
          results = run(graph, graph.output_gradients, weights, Graph::free);
        }
        graph = LayerGraph();
        add_weight_gradients(unit, results, gradients);
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

  TensorSpan weights_of(const Unit& unit) const { return state_.weights->of(unit.position); }

  Tensors run(const LayerGraph& graph, TensorSpan output_gradients, const Edges& wanted, Graph after) {
    return detail::run_backward(graph, output_gradients, wanted, after, state_.call);
  }

  template <class Visit>
  void for_each_unit(Visit&& visit) {
    const c10::AutoGradMode no_grad(false);
    for (std::size_t u = plan_.units.size(); u-- > 0;) {
      const Unit& unit = plan_.units[u];
      if (state_.graphs[u].empty()) continue;
      detail::guarded([&] { return detail::unit_name(model_, unit); }, [&] { visit(u, state_.graphs[u]); });
    }
  }

  template <class Body>
  void observed(const Unit& unit, Phase phase, Body&& body) {
    if (observer_ != nullptr) observer_->begin(unit.position, phase);
    body();
    if (observer_ != nullptr) observer_->end(unit.position, phase);
  }

  /// Runs the forward of a recomputed unit again, once: with its key and weights, so that it draws the same
  /// numbers. Its statistics are those of the first time.
  void recompute(std::size_t u, LayerGraph& graph) {
    Tensors inputs = std::exchange(graph.kept_inputs, {});
    if (inputs.empty()) return;
    std::vector<BatchStatistics> repeated;
    detail::UnitForward{segment_, *state_.weights, state_.context, repeated}.run(u, std::move(inputs), &graph);
  }

  /// All consumers of the unit's outputs have been visited before.
  Tensors take_output_gradients(const Unit& unit) {
    Tensors gradients;
    for (int output = 0; output < unit.output_count; ++output) {
      gradients.push_back(sum(unit.first_output + output).take());
    }
    return gradients;
  }

  static bool wants_input_gradient(const Unit& unit) {
    return std::find(unit.source_gradient.begin(), unit.source_gradient.end(), true) !=
           unit.source_gradient.end();
  }

  /// The unit's whole backward: ends its graph, passes the input gradients on and returns the weight gradients.
  Tensors inputs_and_weights(const Unit& unit, LayerGraph& graph, TensorSpan output_gradients) {
    Edges wanted = graph.inputs;
    detail::add_leaf_edges(weights_of(unit), wanted);
    Tensors results = run(graph, output_gradients, wanted, Graph::free);
    graph = LayerGraph();
    add_input_gradients(unit, results);
    results.erase(results.begin(), results.begin() + unit.sources.size());
    return results;
  }

  void add_input_gradients(const Unit& unit, TensorSpan results) {
    for (std::size_t i = 0; i < unit.sources.size(); ++i) {
      if (results[i].defined()) sum(unit.sources[i]).add(detail::dense(results[i]));
    }
  }

  void add_weight_gradients(const Unit& unit, std::span<at::Tensor> results, Gradients& gradients) const {
    const TensorSpan weights = weights_of(unit);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto layer = static_cast<std::size_t>(unit.position);
      const at::Tensor place = gradients.places.empty() ? at::Tensor() : gradients.places[layer][i];
      detail::accumulate(gradients.layers[layer][i], place, weights[i], std::move(results[i]));
    }
  }

  const ResolvedModel& model_;
  const detail::BoundSegment& segment_;
  const SegmentPlan& plan_;
  detail::PassState& state_;
  LayerObserver* observer_;
};

}  // namespace

Tensors Segment::backward(Pass& pass, std::span<const Tensors> output_gradients, double loss_weight,
                          Gradients& gradients, LayerObserver* observer) const {
  Tensors result;
  {
    Backwarding walk(*model_, *bound_, state_of(pass.state_), observer);
    walk.receive(output_gradients, loss_weight);
    walk.backward(gradients);
    result = walk.input_gradients();
  }
  states_->give(std::move(pass.state_));
  return result;
}

Tensors Segment::input_gradient(Pass& pass, std::span<const Tensors> output_gradients, double loss_weight,
                                LayerObserver* observer) const {
  Backwarding walk(*model_, *bound_, state_of(pass.state_), observer);
  walk.receive(output_gradients, loss_weight);
  walk.input_gradient();
  return walk.input_gradients();
}

void Segment::weight_gradient(Pass& pass, Gradients& gradients, LayerObserver* observer) const {
  Backwarding(*model_, *bound_, state_of(pass.state_), observer).weight_gradient(gradients);
  states_->give(std::move(pass.state_));
}

}  // namespace pp::model
