// Rows of the op table that mix, join or reshape tensors of any rank: linear, bias, add, multiply, concat, pad,
// mean, flatten, opaque.
#include <limits>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_linear(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., features]");
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

OpResult infer_bias(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., features]");
  return {{inputs[0]}, {{"bias", {inputs[0].shape.back()}}}, {}, Flops(elements(inputs[0]))};
}

/// Sizes of 1 are repeated to meet others.
bool broadcast(Shape& shape, const Shape& other) {
  if (shape.size() != other.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != other[d] && shape[d] != 1 && other[d] != 1) return false;
    shape[d] = shape[d] == 1 ? other[d] : shape[d];
  }
  return true;
}

/// add and multiply
OpResult infer_elementwise(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  TensorType output = inputs[0];
  double flops = 0;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].dtype != output.dtype || !broadcast(output.shape, inputs[i].shape))
      refuse_input(i, inputs[i],
                   "the type and shape of input 0, " + to_text(inputs[0].shape) + ", or sizes of 1");
    if (too_large(output.shape)) refuse_input(i, inputs[i], "a result of at most 2^40 elements");
    flops += elements(output);
  }
  return {{std::move(output)}, {}, {}, Flops(flops)};
}

OpResult infer_concat(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
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

OpResult infer_pad(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  const std::size_t dim = dimension(attributes, inputs);
  TensorType output = inputs[0];
  const std::int64_t before = integer(attributes, "before"), after = integer(attributes, "after");
  output.shape[dim] += before + after;
  if (output.shape[dim] < 1 || -before >= inputs[0].shape[dim] || -after >= inputs[0].shape[dim]) {
    throw Error(ErrorKind::data, "before " + std::to_string(before) + " and after " + std::to_string(after) +
                                     " leave nothing of dimension " + std::to_string(dim) + ", which has " +
                                     std::to_string(inputs[0].shape[dim]) + " elements; cut off less");
  }
  return {{std::move(output)}, {}, {}, {}};
}

OpResult infer_mean(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  const std::size_t dim = dimension(attributes, inputs);
  TensorType output = inputs[0];
  output.shape.erase(output.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  // Each input element is added once, each output divided once.
  const Flops flops(elements(inputs[0]) + elements(output));
  return {{std::move(output)}, {}, {}, flops};
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
      {"flatten", "all dimensions into one", 1, 1, {}, infer_flatten},
      {"bias", "adds a learned vector to the last dimension", 1, 1, {}, infer_bias},
      {"add", "sum of two or more tensors; sizes of 1 are repeated", 2, kMany, {}, infer_elementwise},
      {"multiply", "product of two or more tensors; sizes of 1 are repeated", 2, kMany, {}, infer_elementwise},
      {"concat", "tensors one after the other along a dimension", 2, kMany, {dim_attribute()}, infer_concat},
      {"pad",
       "zeros around a dimension; negative counts cut off",
       1,
       1,
       {dim_attribute(), integer_attribute("before", 0, -kMaxSize, kMaxSize, "elements added in front"),
        integer_attribute("after", 0, -kMaxSize, kMaxSize, "elements added behind")},
       infer_pad},
      {"mean", "mean over a dimension, which disappears", 1, 1, {dim_attribute()}, infer_mean},
      {kOpaqueOp,
       "a layer of another planner's graph, not runnable",
       0,
       kMany,
       {integer_attribute("output_bytes", 0, 0, kMaxBytes, "bytes of the output per sample")},
       infer_opaque},
  };
}

}  // namespace pp::detail
