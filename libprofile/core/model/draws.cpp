#include "libprofile/core/model/draws.h"

#include <algorithm>
#include <variant>

#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

bool any_draws(const std::vector<Layer>& nodes) {
  return std::ranges::any_of(nodes, [](const Layer& node) { return draws_numbers(node); });
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

}  // namespace pp
