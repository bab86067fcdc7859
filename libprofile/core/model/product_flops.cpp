#include "libprofile/core/model/product_flops.h"

#include <algorithm>

#include "libprofile/core/index.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

/// Of the parameters the share of elements that is trained; 0 of none.
struct Weights {
  double all = 0, trained = 0;
  void add(const ResolvedLayer& layer, std::size_t parameter) {
    const auto elements = static_cast<double>(element_count(layer.parameters[parameter].shape));
    all += elements;
    if (layer.backward && layer.trained[parameter]) trained += elements;
  }
  double share() const { return all > 0 ? trained / all : 0; }
};

/// Products of two factors without weights.
struct Inside {
  double flops = 0;
  double masked = 0;  ///< of these
};

PassFlops with_backward(double flops, const Inside& inside, const Weights& weights, bool passes) {
  PassFlops result{flops, 0, inside.masked};
  if (passes) {
    result.backward += weights.all > 0 ? flops + inside.flops : 2 * flops;
    result.masked += 2 * inside.masked;
  }
  result.backward += weights.share() * (flops - inside.flops);
  return result;
}

/// Of `rows` rows of an operation that takes `flops` for one.
Inside inside_of(const OpRow& row, const Attributes& attributes, const std::vector<TensorType>& inputs,
                 double flops, double rows = 1) {
  if (row.work.inside == nullptr) return {};
  const OpInside inside = row.work.inside(attributes, inputs);
  const double counted = rows * std::min(inside.flops, flops);
  return {counted, inside.one_kernel ? (1 - inside.computed) * counted : 0};
}

bool is_product(const OpRow* row) {
  return row != nullptr &&
         (row->work.kind == OpWork::Kind::products || row->work.kind == OpWork::Kind::experts);
}

PassFlops of_layer(const Layer& layer, const ResolvedLayer& resolved) {
  Weights weights;
  for (std::size_t p = 0; p < resolved.parameters.size(); ++p) weights.add(resolved, p);
  const bool passes = resolved.backward && std::ranges::any_of(resolved.input_gradient, std::identity());
  const double flops = resolved.forward_flops.value;
  if (layer.call) return with_backward(flops, {}, weights, passes);
  const OpRow* row = find_op(layer.op);
  if (!is_product(row)) return {};
  return with_backward(flops, inside_of(*row, layer.attributes, resolved.inputs, flops), weights, passes);
}

PassFlops of_node(const Layer& node, const ResolvedNode& resolved, const ResolvedLayer& layer) {
  Weights weights;
  for (const int parameter : resolved.parameters) weights.add(layer, at(parameter));
  if (node.call) return with_backward(node.call->flops, {}, weights, layer.backward);
  const OpRow* row = find_op(node.op);
  if (!is_product(row)) return {};
  std::vector<TensorType> types;
  for (const RowTensor& input : resolved.inputs) types.push_back(input.type);
  const double flops = row->infer(node.attributes, types).forward_flops.value;
  const auto rows = static_cast<double>(resolved.inputs.front().rows);
  return with_backward(rows * flops, inside_of(*row, node.attributes, types, flops, rows), weights,
                       layer.backward);
}

}  // namespace

std::vector<PassFlops> product_flops(const ResolvedModel& model) {
  std::vector<PassFlops> flops;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const Layer& layer = model.graph.layers[l];
    const ResolvedLayer& resolved = model.layers[l];
    if (resolved.nodes.empty()) {
      flops.push_back(of_layer(layer, resolved));
      continue;
    }
    PassFlops& sum = flops.emplace_back();
    for (std::size_t n = 0; n < layer.nodes.size(); ++n) {
      const PassFlops node = of_node(layer.nodes[n], resolved.nodes[n], resolved);
      sum.forward += node.forward;
      sum.backward += node.backward;
      sum.masked += node.masked;
    }
  }
  return flops;
}

std::int64_t tokens_per_sample(const ResolvedModel& model) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < model.graph.inputs.size(); ++i) {
    const TensorSource source{TensorSource::Kind::input, static_cast<int>(i)};
    if (index_limit(model, source) > 0) most = std::max(most, element_count(model.graph.inputs[i].type.shape));
  }
  return most;
}

}  // namespace pp
