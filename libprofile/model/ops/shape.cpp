#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// [n, ...] -> [n, elements]; shares storage with its input
Tensors flatten(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& /*context*/) {
  return {inputs[0].flatten(1)};
}

// k times [n, ...] -> [n, ...]: ((x0 + x1) + x2) + ...
Tensors add(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
            LayerContext& /*context*/) {
  at::Tensor sum = inputs[0].add(inputs[1]);
  for (const at::Tensor& input : inputs.subspan(2)) sum = sum.add(input);
  return {sum};
}

// k times [n, ...] -> [n, ...]: ((x0 * x1) * x2) * ...
Tensors multiply(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
                 LayerContext& /*context*/) {
  at::Tensor product = inputs[0].mul(inputs[1]);
  for (const at::Tensor& input : inputs.subspan(2)) product = product.mul(input);
  return {product};
}

// Along dimension `dim` of a sample: for 0, [n, c0, ...], [n, c1, ...] -> [n, c0 + c1, ...]
Tensors concat(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
               LayerContext& /*context*/) {
  return {at::cat(at::TensorList(inputs.data(), inputs.size()), integer(attributes, "dim") + 1)};
}

// Along dimension `dim` of a sample: for 0, [n, k, ...] -> [n, before + k + after, ...]
Tensors pad(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
            LayerContext& /*context*/) {
  const std::int64_t behind = inputs[0].dim() - 2 - integer(attributes, "dim");  // dimensions after `dim`
  std::vector<std::int64_t> widths(2 * static_cast<std::size_t>(behind), 0);     // from the last dimension on
  widths.push_back(integer(attributes, "before"));
  widths.push_back(integer(attributes, "after"));
  return {at::constant_pad_nd(inputs[0], widths, 0)};
}

// Over dimension `dim` of a sample: for 0, [n, k, ...] -> [n, ...]
Tensors mean(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {inputs[0].mean(integer(attributes, "dim") + 1)};
}

}  // namespace pp::model::ops
