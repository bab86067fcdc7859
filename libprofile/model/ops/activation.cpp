#include <ATen/ops/gelu.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold_backward.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

// All: [n, ...] -> the same shape
namespace pp::model::ops {
namespace {

WrittenBackward relu_backward(const Attributes& /*attributes*/) {
  return {.saves = [](TensorSpan /*inputs*/, TensorSpan outputs) -> Tensors { return {outputs[0]}; },
          .inputs = [](TensorSpan saved, TensorSpan /*weights*/, const at::Tensor& gradient) -> Tensors {
            return {at::threshold_backward(gradient, saved[0], 0)};
          }};
}

Forward relu(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::relu(x); });
}

Forward relu6(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::relu6(x); });
}

Forward leaky_relu(const Attributes& attributes) {
  return unary(
      [slope = number(attributes, "negative_slope")](const at::Tensor& x) { return at::leaky_relu(x, slope); });
}

Forward sigmoid(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::sigmoid(x); });
}

Forward silu(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::silu(x); });
}

Forward hardsigmoid(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::hardsigmoid(x); });
}

Forward hardswish(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::hardswish(x); });
}

Forward tanh(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::tanh(x); });
}

// x * Phi(x), exact or with the approximation of Phi by tanh.
Forward gelu(const Attributes& attributes) {
  const char* const approximate = boolean(attributes, "tanh") ? "tanh" : "none";
  return unary([approximate](const at::Tensor& x) { return at::gelu(x, approximate); });
}

// Over the last dimension.
Forward softmax(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::softmax(x, -1); });
}

constexpr std::array kRows{
    Row{.name = "relu", .bind = relu, .backward = relu_backward},
    Row{"relu6", relu6},
    Row{"leaky_relu", leaky_relu},
    Row{"sigmoid", sigmoid},
    Row{"silu", silu},
    Row{"hardsigmoid", hardsigmoid},
    Row{"hardswish", hardswish},
    Row{"tanh", tanh},
    Row{"gelu", gelu},
    Row{"softmax", softmax},
};

}  // namespace

std::span<const Row> activation_rows() { return kRows; }

}  // namespace pp::model::ops
