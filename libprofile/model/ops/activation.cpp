#include <ATen/ops/gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
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

Tensors relu6(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
              LayerContext& /*context*/) {
  return {at::relu6(inputs[0])};
}

Tensors leaky_relu(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
                   LayerContext& /*context*/) {
  return {at::leaky_relu(inputs[0], number(attributes, "negative_slope"))};
}

Tensors sigmoid(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& /*context*/) {
  return {at::sigmoid(inputs[0])};
}

Tensors silu(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::silu(inputs[0])};
}

// x * Phi(x), exact or with the approximation of Phi by tanh.
Tensors gelu(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::gelu(inputs[0], boolean(attributes, "tanh") ? "tanh" : "none")};
}

Tensors tanh(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
             LayerContext& /*context*/) {
  return {at::tanh(inputs[0])};
}

// factor * x + offset
Tensors scale(const Attributes& attributes, TensorSpan inputs, TensorSpan /*weights*/,
              LayerContext& /*context*/) {
  const double offset = number(attributes, "offset");
  const at::Tensor scaled = inputs[0].mul(number(attributes, "factor"));
  return {offset == 0.0 ? scaled : scaled.add(offset)};
}

// Over the last dimension.
Tensors softmax(const Attributes& /*attributes*/, TensorSpan inputs, TensorSpan /*weights*/,
                LayerContext& /*context*/) {
  return {at::softmax(inputs[0], -1)};
}

}  // namespace pp::model::ops
