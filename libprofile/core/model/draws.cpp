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

// The fractions among the attributes of ops that draw are their probabilities.
bool draws_numbers(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  const auto above_zero = [](const auto& attribute) {
    const auto* value = std::get_if<double>(&attribute.second);
    return value != nullptr && *value > 0;
  };
  return (row != nullptr && row->draws && std::ranges::any_of(layer.attributes, above_zero)) ||
         any_draws(layer.nodes);
}

bool draws_numbers(const LossSpec& loss) { return any_draws(loss.nodes); }

}  // namespace pp
