#include <algorithm>
#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {
namespace {

/// Of one type and shape: their sum is like each of them, and so is its gradient.
bool are_alike(TensorSpan inputs) {
  return std::ranges::all_of(inputs, [&](const at::Tensor& x) {
    return x.dtype() == inputs[0].dtype() && x.sizes() == inputs[0].sizes();
  });
}

/// Over one of them where it may be.
at::Tensor sum_of(const at::Tensor& a, const at::Tensor& b, bool alike) {
  if (alike && may_overwrite(a)) return a.add_(b);
  return alike && may_overwrite(b) ? b.add_(a) : a.add(b);
}

// k times [n, ...] -> [n, ...]: ((x0 + x1) + x2) + ...
Forward add(const Attributes& /*attributes*/) {
  return [](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    const bool alike = are_alike(inputs);
    at::Tensor sum = sum_of(inputs[0], inputs[1], alike);
    for (const at::Tensor& input : inputs.subspan(2)) sum = sum_of(sum, input, alike);
    return {sum};
  };
}
std::optional<WrittenBackward> add_backward(const Attributes& /*attributes*/) {
  return WrittenBackward{.inputs = [](Tensors& /*saved*/, TensorSpan /*weights*/,
                                      const at::Tensor& gradient) -> Tensors { return {gradient}; },
                         .applies = are_alike};
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

constexpr std::array kArithmeticRows{
    Row{.name = "add", .bind = add, .backward = add_backward},
    Row{"multiply", multiply},
    Row{"mean", mean},
    Row{"scale", scale},
};

}  // namespace

std::span<const Row> arithmetic_rows() { return kArithmeticRows; }

}  // namespace pp::model::ops
