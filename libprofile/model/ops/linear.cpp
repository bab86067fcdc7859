#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// [n, ..., in] -> [n, ..., out]; weight [out, in], bias [out]
Tensors linear(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan weights,
               LayerContext& /*context*/) {
  return {at::linear(inputs[0], weights[0], weights.size() > 1 ? weights[1] : at::Tensor())};
}

// [n, ...] int64 -> [n, ..., width]; weight [rows, width]
Tensors embedding(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan weights,
                  LayerContext& /*context*/) {
  return {at::embedding(weights[0], inputs[0])};
}

// [n, positions, width] -> the same; weight [positions, width], added to every sample
Tensors position_embedding(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan weights,
                           LayerContext& /*context*/) {
  return {inputs[0].add(weights[0])};
}

}  // namespace pp::model::ops
