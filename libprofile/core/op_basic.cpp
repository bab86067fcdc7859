// Rows of the op table for ops on any shape: linear, pointwise functions, flatten, dropout, add, concat,
// opaque.
#include <limits>
#include <utility>

#include "libprofile/core/op_rows.h"

namespace pp::detail {
namespace {

/// Pointwise: the shape stays; `cost` operations per element.
template <int cost>
OpResult infer_pointwise(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  return {{inputs[0]}, {}, {}, Flops(cost * elements(inputs[0]))};
}

OpResult infer_linear(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[0].shape.empty()) refuse_input(0, inputs[0], "at least one dimension, [..., features]");
  const std::int64_t in = inputs[0].shape.back();
  const std::int64_t out = integer(attributes, "out_features");
  const bool bias = boolean(attributes, "bias");
  OpResult result{{inputs[0]}, {{"weight", {out, in}}}, {}, {}};
  result.outputs[0].shape.back() = out;
  if (bias) result.parameters.push_back({"bias", {out}});
  result.forward_flops = Flops(elements(result.outputs[0]) * (2.0 * static_cast<double>(in) + (bias ? 1 : 0)));
  return result;
}

OpResult infer_flatten(const Attributes&, std::span<const TensorType> inputs) {
  return {{{{element_count(inputs[0].shape)}, inputs[0].dtype}}, {}, {}, {}};
}

OpResult infer_add(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i] != inputs[0])
      refuse_input(i, inputs[i], "the type and shape of input 0, " + to_text(inputs[0].shape));
  }
  return {{inputs[0]}, {}, {}, Flops(static_cast<double>(inputs.size() - 1) * elements(inputs[0]))};
}

OpResult infer_concat(const Attributes& attributes, std::span<const TensorType> inputs) {
  const auto dim = static_cast<std::size_t>(integer(attributes, "dim"));
  if (dim >= inputs[0].shape.size()) {
    refuse_input(0, inputs[0],
                 "a dimension " + std::to_string(dim) + " (attribute dim, counted without the batch)");
  }
  TensorType output = inputs[0];
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    TensorType like_first = inputs[i];
    if (like_first.shape.size() == output.shape.size()) like_first.shape[dim] = inputs[0].shape[dim];
    if (like_first != inputs[0]) {
      refuse_input(i, inputs[i],
                   "the type and shape of input 0, " + to_text(inputs[0].shape) + ", except in dimension " +
                       std::to_string(dim));
    }
    output.shape[dim] += inputs[i].shape[dim];
  }
  return {{std::move(output)}, {}, {}, {}};
}

OpResult infer_opaque(const Attributes& attributes, std::span<const TensorType>) {
  return {{{{integer(attributes, "output_bytes")}, DType::uint8}}, {}, {}, {}};
}

}  // namespace

std::vector<OpRow> basic_ops() {
  constexpr int kMany = std::numeric_limits<int>::max();
  constexpr double kMaxBytes = 1LL << 40;
  return {
      {"linear",
       "y = x W^T + b on the last dimension",
       1,
       1,
       {required_integer("out_features", 1, kMaxSize, "features of the output"),
        flag_attribute("bias", true, "add b")},
       infer_linear},
      {"relu", "max(x, 0)", 1, 1, {}, infer_pointwise<1>},
      {"tanh", "hyperbolic tangent", 1, 1, {}, infer_pointwise<1>},
      {"gelu", "x * Phi(x), exact (by erf)", 1, 1, {}, infer_pointwise<5>},
      {"dropout",
       "zeroes elements with probability p in training and scales the others by 1/(1-p)",
       1,
       1,
       {number_attribute("p", 0.5, 0, 0.99, "probability")},
       infer_pointwise<2>},
      {"flatten", "all dimensions into one", 1, 1, {}, infer_flatten},
      {"add", "sum of two or more tensors of one shape", 2, kMany, {}, infer_add},
      {"concat",
       "tensors one after the other along a dimension",
       2,
       kMany,
       {integer_attribute("dim", 0, 0, 15, "dimension, counted without the batch")},
       infer_concat},
      {kOpaqueOp,
       "a layer of another planner's graph: edges and sizes only, not runnable",
       0,
       kMany,
       {integer_attribute("output_bytes", 0, 0, kMaxBytes, "bytes of the output per sample")},
       infer_opaque},
  };
}

}  // namespace pp::detail
