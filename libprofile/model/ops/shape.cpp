#include <ATen/core/DimVector.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// [n, ...] -> [n, elements]; shares storage with its input
Forward flatten(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return x.flatten(1); });
}

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

// Along dimension `dim` of a sample: for 0, [n, c0, ...], [n, c1, ...] -> [n, c0 + c1, ...]
Forward concat(const Attributes& attributes) {
  return [dim = integer(attributes, "dim") + 1](TensorSpan inputs, TensorSpan /*weights*/,
                                                LayerContext& /*context*/) -> Tensors {
    return {at::cat(at::TensorList(inputs.data(), inputs.size()), dim)};
  };
}

// Along dimension `dim` of a sample: for 0, [n, k, ...] -> [n, before + k + after, ...]
Forward pad(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim"), before = integer(attributes, "before"),
                after = integer(attributes, "after")](const at::Tensor& x) {
    const std::int64_t behind = x.dim() - 2 - dim;                  // dimensions after `dim`
    at::DimVector widths(2 * static_cast<std::size_t>(behind), 0);  // from the last dimension on
    widths.append({before, after});
    return at::constant_pad_nd(x, widths, 0);
  });
}

// Over dimension `dim` of a sample: for 0, [n, k, ...] -> [n, ...]
Forward mean(const Attributes& attributes) {
  return unary([dim = integer(attributes, "dim") + 1](const at::Tensor& x) { return x.mean(dim); });
}

}  // namespace pp::model::ops
