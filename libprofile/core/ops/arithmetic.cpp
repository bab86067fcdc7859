// Rows that combine elements: sums, products, means.
#include <limits>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_scale(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  return {{inputs[0]}, {}, {}, Flops(2.0 * elements(inputs[0]))};
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
    if (inputs[i].dtype != output.dtype || !broadcast(output.shape, inputs[i].shape)) {
      refuse_input(i, inputs[i],
                   "the type and shape of input 0, " + to_text(inputs[0].shape) + ", or sizes of 1");
    }
    if (too_large(output.shape)) refuse_input(i, inputs[i], "a result of at most 2^40 elements");
    flops += elements(output);
  }
  return {{std::move(output)}, {}, {}, Flops(flops)};
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

}  // namespace

std::vector<OpRow> arithmetic_ops() {
  constexpr int kMany = std::numeric_limits<int>::max();
  return {
      {.name = "add",
       .summary = "sum of two or more tensors; sizes of 1 are repeated",
       .shapes = "two or more of as many dimensions; sizes of 1 are repeated",
       .flops = "1 per element of each sum",
       .min_inputs = 2,
       .max_inputs = kMany,
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.passes_gradients = true},
       .infer = infer_elementwise},
      {.name = "multiply",
       .summary = "product of two or more tensors; sizes of 1 are repeated",
       .shapes = "as add",
       .flops = "1 per element of each product",
       .min_inputs = 2,
       .max_inputs = kMany,
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_elementwise},
      {.name = "mean",
       .summary = "mean over a dimension, which disappears",
       .shapes = "the shape without `dim` (counted without the batch)",
       .flops = "input + output elements",
       .attributes = {dim_attribute()},
       .infer = infer_mean},
      {.name = "scale",
       .summary = "factor * x + offset",
       .shapes = "any -> the same, factor x + offset",
       .flops = "2 per element",
       .attributes = {number_attribute("factor", 1, -1e6, 1e6, "multiplies every element"),
                      number_attribute("offset", 0, -1e6, 1e6, "is added to every element")},
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .infer = infer_scale},
  };
}

}  // namespace pp::detail
