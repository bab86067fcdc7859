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
  Backwarding(const ResolvedModel& model, const SegmentPlan& plan, detail::PassState& state,
              LayerObserver* observer)
      : model_(model),
        plan_(plan),
        state_(state),
        observer_(observer),
        sums_(static_cast<std::size_t>(plan.tensor_count())) {}

  void receive(std::span<const std::vector<at::Tensor>> output_gradients, double loss_weight) {
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
    for_each_unit([&](const Unit& unit, LayerGraph& graph) {
      const std::vector<at::Tensor> arrived = take_output_gradients(unit);
      observed(unit, Phase::backward, [&] {
        recompute(unit, graph);
        std::vector<at::Tensor> weight_gradients = inputs_and_weights(unit, graph, arrived);
        add_weight_gradients(unit, weight_gradients, gradients);
      });
    });
  }

  void input_gradient() {
    for_each_unit([&](const Unit& unit, LayerGraph& graph) {
      std::vector<at::Tensor> arrived = take_output_gradients(unit);
      if (!wants_input_gradient(unit)) {
        graph.output_gradients = std::move(arrived);
        return;
      }
      observed(unit, Phase::input_gradient, [&] {
        recompute(unit, graph);
        if (weights_of(unit).empty()) {
          add_input_gradients(unit, detail::run_backward(graph, arrived, graph.inputs, Graph::free));
          graph = LayerGraph();
        } else if (graph.weights_with_inputs) {
          std::vector<at::Tensor> weight_gradients = inputs_and_weights(unit, graph, arrived);
          graph.weight_gradients = std::move(weight_gradients);
        } else {
          add_input_gradients(unit, detail::run_backward(graph, arrived, graph.inputs, Graph::keep));
          graph.output_gradients = std::move(arrived);
        }
      });
    });
  }

  void weight_gradient(Gradients& gradients) {
    for_each_unit([&](const Unit& unit, LayerGraph& graph) {
      observed(unit, Phase::weight_gradient, [&] {
        std::vector<at::Tensor> results = std::move(graph.weight_gradients);
        if (results.empty()) {
          recompute(unit, graph);
          const Edges weights = detail::leaf_edges(weights_of(unit));
          results = detail::run_backward(graph, graph.output_gradients, weights, Graph::free);
        }
        graph = LayerGraph();
        add_weight_gradients(unit, results, gradients);
      });
    });
  }

  /// One per input of the segment.
  std::vector<at::Tensor> input_gradients() {
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < plan_.inputs.size(); ++i) {
      gradients.push_back(sums_[i].take());
      if (plan_.input_gradient[i] && !gradients.back().defined()) {
        throw Error(ErrorKind::internal, "segment: no gradient reached input " + std::to_string(i) +
                                             "; pass the gradients of all outputs that have consumers");
      }
    }
    return gradients;
  }

 private:
  GradientSum& sum(int tensor) { return sums_[static_cast<std::size_t>(tensor)]; }

  std::span<const at::Tensor> weights_of(const Unit& unit) const {
    if (unit.layer < 0) return {};
    return state_.weights->layers[static_cast<std::size_t>(unit.position)];
  }

  template <class Visit>
  void for_each_unit(Visit&& visit) {
    const c10::AutoGradMode no_grad(false);
    for (std::size_t u = plan_.units.size(); u-- > 0;) {
      const Unit& unit = plan_.units[u];
      if (state_.graphs[u].empty()) continue;
      detail::guarded([&] { return detail::unit_name(model_, unit); }, [&] { visit(unit, state_.graphs[u]); });
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
  void recompute(const Unit& unit, LayerGraph& graph) {
    std::vector<at::Tensor> inputs = std::exchange(graph.kept_inputs, {});
    if (inputs.empty()) return;
    std::vector<BatchStatistics> repeated;
    detail::UnitForward{model_, *state_.weights, state_.context, repeated}.run(unit, std::move(inputs), &graph);
  }

  /// All consumers of the unit's outputs have been visited before.
  std::vector<at::Tensor> take_output_gradients(const Unit& unit) {
    std::vector<at::Tensor> gradients;
    gradients.reserve(static_cast<std::size_t>(unit.output_count));
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
  std::vector<at::Tensor> inputs_and_weights(const Unit& unit, LayerGraph& graph,
                                             std::span<const at::Tensor> output_gradients) {
    Edges wanted = graph.inputs;
    for (torch::autograd::Edge& edge : detail::leaf_edges(weights_of(unit))) wanted.push_back(std::move(edge));
    std::vector<at::Tensor> results = detail::run_backward(graph, output_gradients, wanted, Graph::free);
    graph = LayerGraph();
    add_input_gradients(unit, results);
    results.erase(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(unit.sources.size()));
    return results;
  }

  void add_input_gradients(const Unit& unit, std::span<const at::Tensor> results) {
    for (std::size_t i = 0; i < unit.sources.size(); ++i) {
      if (results[i].defined()) sum(unit.sources[i]).add(detail::dense(results[i]));
    }
  }

  void add_weight_gradients(const Unit& unit, std::span<at::Tensor> results, Gradients& gradients) const {
    const std::span<const at::Tensor> weights = weights_of(unit);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto layer = static_cast<std::size_t>(unit.position);
      const at::Tensor place = gradients.places.empty() ? at::Tensor() : gradients.places[layer][i];
      detail::accumulate(gradients.layers[layer][i], place, weights[i], std::move(results[i]));
    }
  }

  const ResolvedModel& model_;
  const SegmentPlan& plan_;
  detail::PassState& state_;
  LayerObserver* observer_;
  std::vector<GradientSum> sums_;
};

}  // namespace

std::vector<at::Tensor> Segment::backward(Pass& pass, std::span<const std::vector<at::Tensor>> output_gradients,
                                          double loss_weight, Gradients& gradients,
                                          LayerObserver* observer) const {
  Backwarding walk(*model_, *plan_, state_of(pass.state_), observer);
  walk.receive(output_gradients, loss_weight);
  walk.backward(gradients);
  pass.state_.reset();
  return walk.input_gradients();
}

std::vector<at::Tensor> Segment::input_gradient(Pass& pass,
                                                std::span<const std::vector<at::Tensor>> output_gradients,
                                                double loss_weight, LayerObserver* observer) const {
  Backwarding walk(*model_, *plan_, state_of(pass.state_), observer);
  walk.receive(output_gradients, loss_weight);
  walk.input_gradient();
  return walk.input_gradients();
}

void Segment::weight_gradient(Pass& pass, Gradients& gradients, LayerObserver* observer) const {
  Backwarding walk(*model_, *plan_, state_of(pass.state_), observer);
  walk.weight_gradient(gradients);
  pass.state_.reset();
}

}  // namespace pp::model
