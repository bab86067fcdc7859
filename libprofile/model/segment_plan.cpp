#include "libprofile/model/segment_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::model::detail {

namespace {

using Kind = TensorSource::Kind;

/// Ascending layer and output, then model inputs, then targets.
struct SourceOrder {
  bool operator()(const TensorSource& a, const TensorSource& b) const {
    return std::tuple(a.kind, a.index, a.output) < std::tuple(b.kind, b.index, b.output);
  }
};
using TensorNumbers = std::map<TensorSource, int, SourceOrder>;

decltype(auto) at(const auto& values, int index) { return values[static_cast<std::size_t>(index)]; }

class Planner {
 public:
  Planner(const ResolvedModel& model, std::vector<int> layers, bool with_loss) : model_(model) {
    plan_.layers = std::move(layers);
    plan_.with_loss = with_loss;
    inside_.resize(model.layers.size(), false);
    for (const int layer : plan_.layers) inside_[static_cast<std::size_t>(layer)] = true;
  }

  SegmentPlan build(const std::vector<int>& recompute) {
    number_inputs();
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) add_layer(static_cast<int>(i), plan_.layers[i]);
    if (plan_.with_loss) add_loss();
    for (PlannedLayer& planned : plan_.order) {
      planned.recompute = planned.backward && std::ranges::count(recompute, planned.layer) > 0;
    }
    find_uses();
    find_outputs();
    return std::move(plan_);
  }

 private:
  bool is_inside(const TensorSource& source) const {
    return source.kind == Kind::layer && at(inside_, source.index);
  }

  void number_inputs() {
    const auto collect = [&](const std::vector<TensorSource>& sources) {
      for (const TensorSource& source : sources) {
        if (!is_inside(source)) numbers_.emplace(source, 0);
      }
    };
    for (const int layer : plan_.layers) collect(at(model_.layers, layer).sources);
    if (plan_.with_loss) collect(model_.loss_sources);
    for (auto& [source, number] : numbers_) {
      number = static_cast<int>(plan_.inputs.size());
      plan_.inputs.push_back(source);
    }
    plan_.input_gradient.resize(plan_.inputs.size(), false);
    next_tensor_ = static_cast<int>(plan_.inputs.size());
  }

  void add_layer(int position, int layer) {
    const ResolvedLayer& resolved = at(model_.layers, layer);
    const int outputs = static_cast<int>(resolved.outputs.size());
    for (int output = 0; output < outputs; ++output) {
      numbers_.emplace(TensorSource{Kind::layer, layer, output}, next_tensor_ + output);
    }
    add_layer({.position = position, .layer = layer, .output_count = outputs}, resolved);
  }

  void add_loss() { add_layer({.position = static_cast<int>(plan_.layers.size())}, model_.loss); }

  void add_layer(PlannedLayer planned, const ResolvedLayer& resolved) {
    planned.first_output = next_tensor_;
    next_tensor_ += planned.output_count;
    planned.backward = resolved.backward;
    planned.source_gradient = resolved.input_gradient;
    for (std::size_t k = 0; k < resolved.sources.size(); ++k) {
      planned.sources.push_back(numbers_.at(resolved.sources[k]));
      if (resolved.input_gradient[k] && !is_inside(resolved.sources[k]))
        plan_.input_gradient[static_cast<std::size_t>(planned.sources.back())] = true;
    }
    plan_.order.push_back(std::move(planned));
  }

  void find_uses() {
    plan_.last_use.assign(static_cast<std::size_t>(next_tensor_), -1);
    for (std::size_t u = 0; u < plan_.order.size(); ++u) {
      for (const int tensor : plan_.order[u].sources)
        plan_.last_use[static_cast<std::size_t>(tensor)] = static_cast<int>(u);
    }
  }

  void find_outputs() {
    std::map<TensorSource, int, SourceOrder> leaving;
    const auto collect = [&](const std::vector<TensorSource>& sources) {
      for (const TensorSource& source : sources) {
        if (is_inside(source)) leaving.emplace(source, numbers_.at(source));
      }
    };
    for (std::size_t layer = 0; layer < model_.layers.size(); ++layer) {
      if (!inside_[layer]) collect(model_.layers[layer].sources);
    }
    collect(model_.outputs);
    if (!plan_.with_loss) collect(model_.loss_sources);
    plan_.leaves.assign(static_cast<std::size_t>(next_tensor_), false);
    for (const auto& [source, tensor] : leaving) {
      plan_.outputs.push_back(source);
      plan_.output_tensor.push_back(tensor);
      plan_.leaves[static_cast<std::size_t>(tensor)] = true;
    }
    if (plan_.with_loss) plan_.leaves.back() = true;
  }

  const ResolvedModel& model_;
  std::vector<bool> inside_;
  TensorNumbers numbers_;
  int next_tensor_ = 0;
  SegmentPlan plan_;
};

void check_layers(const ResolvedModel& model, const std::vector<int>& layers, bool with_loss,
                  const std::vector<int>& recompute) {
  const auto fail = [](const std::string& message) { throw Error(ErrorKind::internal, "segment: " + message); };
  if (layers.empty()) fail("no layers; give it at least one");
  if (with_loss && !model.graph.loss) fail("the model has no loss");
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= model.layer_count()) {
      fail("layer " + std::to_string(layers[i]) + " is not one of the model's " +
           std::to_string(model.layer_count()));
    }
    if (i > 0 && layers[i] <= layers[i - 1])
      fail("layer " + std::to_string(layers[i]) + " is not in ascending order");
  }
  for (const int layer : recompute) {
    if (!std::ranges::binary_search(layers, layer))
      fail("layer " + std::to_string(layer) + " is to be recomputed, but is not in the segment");
  }
}

}  // namespace

SegmentPlan plan_segment(const ResolvedModel& model, std::vector<int> layers, bool with_loss,
                         const std::vector<int>& recompute) {
  check_layers(model, layers, with_loss, recompute);
  return Planner(model, std::move(layers), with_loss).build(recompute);
}

std::string layer_name(const ResolvedModel& model, const PlannedLayer& planned) {
  if (planned.layer < 0) return "loss (" + model.graph.loss->op + ")";
  const Layer& layer = model.graph.layers[static_cast<std::size_t>(planned.layer)];
  return "layer \"" + layer.name + "\" (" + layer.op + ")";
}

}  // namespace pp::model::detail
