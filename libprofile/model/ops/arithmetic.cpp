#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

// k times [n, ...] -> [n, ...]: ((x0 + x1) + x2) + ...
Forward add(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    at::Tensor sum = inputs[0].add(inputs[1]);
    for (const at::Tensor& input : inputs.subspan(2)) sum = sum.add(input);
    return {sum};
  };
}

// k times [n, ...] -> [n, ...]: ((x0 * x1) * x2) * ...
Forward multiply(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    at::Tensor product = inputs[0].mul(inputs[1]);
    for (const at::Tensor& input : inputs.subspan(2)) product = product.mul(input);
    return {product};
  };
}

// Over dimension `dim` of a sample: for 0, [n, k, ...] -> [n, ...]
Forward mean(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim") + 1](const at::Tensor& x) { return x.mean(dim); });
}

// factor * x + offset
Forward scale(const Attributes& attributes) {
  return unary(
      [factor = number(attributes, "factor"), offset = number(attributes, "offset")](const at::Tensor& x) {
        const at::Tensor scaled = x.mul(factor);
        return offset == 0.0 ? scaled : scaled.add(offset);
      });
}

constexpr std::array kRows{
    Row{"add", add},
    Row{"multiply", multiply},
    Row{"mean", mean},
    Row{"scale", scale},
};

}  // namespace

std::span<const Row> arithmetic_rows() { return kRows; }

}  // namespace pp::model::ops
