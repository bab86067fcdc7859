#include <ATen/ops/cat.h>

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

// Along the first dimension of a sample: [n, c0, ...], [n, c1, ...] -> [n, c0 + c1, ...]
Tensors concat(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
               LayerContext& /*context*/) {
  return {at::cat(at::TensorList(inputs.data(), inputs.size()), integer(attributes, "dim") + 1)};
}

}  // namespace pp::model::ops
