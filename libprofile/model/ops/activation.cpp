#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops/forward.h"

// All: [n, ...] -> the same shape
namespace pp::model::ops {

Tensors relu(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::relu(inputs[0])};
}

// The exact form, x * Phi(x).
Tensors gelu(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::gelu(inputs[0])};
}

Tensors tanh(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::tanh(inputs[0])};
}

// Over the last dimension.
Tensors softmax(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& /*context*/) {
  return {at::softmax(inputs[0], -1)};
}

}  // namespace pp::model::ops
