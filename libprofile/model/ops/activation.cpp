#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu6.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <array>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

// All: [n, ...] -> the same shape
namespace pp::model::ops {
namespace {

enum class Keeps { input, output };

/// Of one input, which or whose result is saved.
template <Keeps keeps, class Function>
Forward saving(Function function) {
  return [function](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& context) -> Tensors {
    const at::Tensor y = function(inputs[0]);
    save(context, {keeps == Keeps::input ? inputs[0] : y});
    return {y};
  };
}

/// Its backward: gradient of the output, what was saved -> gradient of the input.
template <class Function>
WrittenBackward of_saved(Function function) {
  return {.inputs = [function](Tensors& saved, TensorSpan /*weights*/, const at::Tensor& gradient) -> Tensors {
    return {function(gradient, saved[0])};
  }};
}

Forward relu(const Attributes& /*attributes*/) {
  return saving<Keeps::output>([](const at::Tensor& x) { return may_overwrite(x) ? x.relu_() : x.relu(); });
}
std::optional<WrittenBackward> relu_backward(const Attributes& /*attributes*/) {
  return of_saved(
      [](const at::Tensor& gradient, const at::Tensor& y) { return at::threshold_backward(gradient, y, 0); });
}

Forward relu6(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::relu6(x); });
}

Forward leaky_relu(const Attributes& attributes) {
  return unary(
      [slope = number(attributes, "negative_slope")](const at::Tensor& x) { return at::leaky_relu(x, slope); });
}

Forward sigmoid(const Attributes& /*attributes*/) {
  return saving<Keeps::output>(
      [](const at::Tensor& x) { return may_overwrite(x) ? x.sigmoid_() : x.sigmoid(); });
}
std::optional<WrittenBackward> sigmoid_backward(const Attributes& /*attributes*/) {
  return of_saved(
      [](const at::Tensor& gradient, const at::Tensor& y) { return at::sigmoid_backward(gradient, y); });
}

Forward silu(const Attributes& /*attributes*/) {
  return saving<Keeps::input>([](const at::Tensor& x) { return at::silu(x); });
}
std::optional<WrittenBackward> silu_backward(const Attributes& /*attributes*/) {
  return of_saved(
      [](const at::Tensor& gradient, const at::Tensor& x) { return at::silu_backward(gradient, x); });
}

Forward hardsigmoid(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::hardsigmoid(x); });
}

Forward hardswish(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::hardswish(x); });
}

Forward tanh(const Attributes& /*attributes*/) {
  return saving<Keeps::output>([](const at::Tensor& x) { return may_overwrite(x) ? x.tanh_() : x.tanh(); });
}
std::optional<WrittenBackward> tanh_backward(const Attributes& /*attributes*/) {
  return of_saved(
      [](const at::Tensor& gradient, const at::Tensor& y) { return at::tanh_backward(gradient, y); });
}

// x * Phi(x), exact or with the approximation of Phi by tanh.
const char* approximation(const Attributes& attributes) {
  return boolean(attributes, "tanh") ? "tanh" : "none";
}
Forward gelu(const Attributes& attributes) {
  return saving<Keeps::input>(
      [approximate = approximation(attributes)](const at::Tensor& x) { return at::gelu(x, approximate); });
}
std::optional<WrittenBackward> gelu_backward(const Attributes& attributes) {
  return of_saved([approximate = approximation(attributes)](const at::Tensor& gradient, const at::Tensor& x) {
    return at::gelu_backward(gradient, x, approximate);
  });
}

// Over the last dimension.
Forward softmax(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::softmax(x, -1); });
}

constexpr std::array kRows{
    Row{.name = "relu", .bind = relu, .backward = relu_backward},
    Row{"relu6", relu6},
    Row{"leaky_relu", leaky_relu},
    Row{.name = "sigmoid", .bind = sigmoid, .backward = sigmoid_backward},
    Row{.name = "silu", .bind = silu, .backward = silu_backward},
    Row{"hardsigmoid", hardsigmoid},
    Row{"hardswish", hardswish},
    Row{.name = "tanh", .bind = tanh, .backward = tanh_backward},
    Row{.name = "gelu", .bind = gelu, .backward = gelu_backward},
    Row{"softmax", softmax},
};

}  // namespace

std::span<const Row> activation_rows() { return kRows; }

}  // namespace pp::model::ops
