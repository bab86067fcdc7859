#include "libprofile/core/model/draws.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <variant>

#include "libprofile/core/counted.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

bool any_draws(const std::vector<Layer>& nodes) {
  return std::ranges::any_of(nodes, [](const Layer& node) { return draws_numbers(node); });
}

/// The dropout of an operation that nothing else keeps from attending by one kernel; else 0.
double dropout_in_the_way(const Layer& layer, std::span<const TensorType> inputs) {
  const OpRow* row = find_op(layer.op);
  if (row == nullptr || !row->work.attention) return 0;
  Attributes without = layer.attributes;
  const auto found = without.find("dropout");
  if (found == without.end()) return 0;
  const double dropout = number(layer.attributes, "dropout");
  found->second = 0.0;
  return dropout > 0 && row->work.inside(without, inputs).one_kernel ? dropout : 0;
}

}  // namespace

bool draws_numbers(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  const auto above_zero = [&](const AttributeSpec& spec) {
    const auto given = layer.attributes.find(spec.name);
    const auto* value = given == layer.attributes.end() ? nullptr : std::get_if<double>(&given->second);
    return spec.probability && value != nullptr && *value > 0;
  };
  return (row != nullptr && std::ranges::any_of(row->attributes, above_zero)) || any_draws(layer.nodes);
}

bool draws_numbers(const LossSpec& loss) { return any_draws(loss.nodes); }

std::string scores_kept(const ResolvedModel& model) {
  double first = 0;
  std::int64_t count = 0;
  const auto look = [&](const Layer& layer, std::span<const TensorType> inputs) {
    const double dropout = dropout_in_the_way(layer, inputs);
    if (dropout > 0 && count++ == 0) first = dropout;
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    look(model.graph.layers[i], model.layers[i].inputs);
    for (std::size_t n = 0; n < model.layers[i].nodes.size(); ++n) {
      std::vector<TensorType> inputs;
      for (const RowTensor& input : model.layers[i].nodes[n].inputs) inputs.push_back(input.type);
      look(model.graph.layers[i].nodes[n], inputs);
    }
  }
  if (count == 0) return "";
  return "attention keeps its scores in " + counted(count, "operation") +
         ", because dropout = " + Json(first).dump() +
         "; with dropout = 0 one kernel attends without them, in less time and memory";
}

}  // namespace pp
