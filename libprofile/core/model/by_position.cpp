#include "libprofile/core/model/by_position.h"

#include <algorithm>
#include <vector>

#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

bool looks_ahead(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  if (row == nullptr || row->positions == Positions::together) return true;
  return row->positions == Positions::causal && !boolean(layer.attributes, "causal");
}

bool all_begin_with(const std::vector<TensorType>& tensors, std::int64_t length) {
  return std::ranges::all_of(
      tensors, [&](const TensorType& type) { return !type.shape.empty() && type.shape.front() == length; });
}

}  // namespace

bool runs_by_pieces(const ResolvedModel& model, std::int64_t length) {
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const ResolvedLayer& resolved = model.layers[l];
    if (looks_ahead(model.graph.layers[l]) || !all_begin_with(resolved.inputs, length) ||
        !all_begin_with(resolved.outputs, length))
      return false;
  }
  return true;
}

}  // namespace pp
