// Forwards that treat every element alike, or combine elements: activations, gates, sums, products, means.
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>

#include <algorithm>
#include <array>
#include <string>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

// All: [n, ...] -> the same shape

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

// cap * tanh(x / cap): the logits and scores of Gemma 2.
Forward soft_cap(const Attributes& attributes) {
  return saving<Keeps::output>(
      [cap = number(attributes, "cap")](const at::Tensor& x) { return x.div(cap).tanh().mul(cap); });
}
std::optional<WrittenBackward> soft_cap_backward(const Attributes& attributes) {
  return of_saved([cap = number(attributes, "cap")](const at::Tensor& gradient, const at::Tensor& y) {
    return at::tanh_backward(gradient, y.div(cap));
  });
}

using Gate = GateActivation;
/// Gate and what it is for: two tensors [n, ..., d], or the halves of one [n, ..., 2 d].
std::array<at::Tensor, 2> gate_and_rest(TensorSpan inputs) {
  if (inputs.size() == 2) return {inputs[0], inputs[1]};
  const std::int64_t width = inputs[0].size(-1) / 2;
  const at::Tensor x = once(inputs[0]);
  return {x.narrow(-1, 0, width), x.narrow(-1, width, width)};
}
// activation(gate) * x -> [n, ..., d]. Shazeer, GLU variants improve transformer, 2020.
Forward gated_activation(const Attributes& attributes) {
  return [gate = choice<Gate>(attributes, "activation")](TensorSpan inputs, TensorSpan /*weights*/,
                                                         LayerContext& context) -> Tensors {
    save(context, Tensors(inputs.begin(), inputs.end()));
    const auto [by, x] = gate_and_rest(inputs);
    return {opened(gate, by).mul(x)};
  };
}
std::optional<WrittenBackward> gated_activation_backward(const Attributes& attributes) {
  return WrittenBackward{
      .inputs = [gate = choice<Gate>(attributes, "activation")](Tensors& saved, TensorSpan /*weights*/,
                                                                const at::Tensor& gradient) -> Tensors {
        const auto [by, x] = gate_and_rest(saved);
        const at::Tensor of_gate = opened_backward(gate, gradient.mul(x), by);
        const at::Tensor of_x = opened(gate, by).mul_(gradient);
        if (saved.size() == 2) return {of_gate, of_x};
        return {at::cat({of_gate, of_x}, -1)};
      }};
}

// Over the last dimension.
Forward softmax(const Attributes& /*attributes*/) {
  return unary([](const at::Tensor& x) { return at::softmax(x, -1); });
}

/// Terms of one type and shape: the sum is like each term, and so is its gradient.
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

constexpr std::array kElementwiseRows{
    Row{.name = "relu", .bind = relu, .backward = relu_backward},
    Row{.name = "sigmoid", .bind = sigmoid, .backward = sigmoid_backward},
    Row{.name = "silu", .bind = silu, .backward = silu_backward},
    Row{.name = "tanh", .bind = tanh, .backward = tanh_backward},
    Row{.name = "gelu", .bind = gelu, .backward = gelu_backward},
    Row{.name = "soft_cap", .bind = soft_cap, .backward = soft_cap_backward},
    Row{.name = "gated_activation", .bind = gated_activation, .backward = gated_activation_backward},
    Row{"softmax", softmax},
    Row{.name = "add", .bind = add, .backward = add_backward},
    Row{"multiply", multiply},
    Row{"mean", mean},
    Row{"scale", scale},
};

}  // namespace

std::span<const Row> elementwise_rows() { return kElementwiseRows; }

at::Tensor opened(GateActivation gate, const at::Tensor& x) {
  using enum GateActivation;
  switch (gate) {
    case silu: return at::silu(x);
    case gelu: return at::gelu(x, "none");
    case gelu_tanh: return at::gelu(x, "tanh");
    case relu: break;
  }
  return at::relu(x);
}
at::Tensor opened_backward(GateActivation gate, const at::Tensor& gradient, const at::Tensor& x) {
  using enum GateActivation;
  switch (gate) {
    case silu: return at::silu_backward(gradient, x);
    case gelu: return at::gelu_backward(gradient, x, "none");
    case gelu_tanh: return at::gelu_backward(gradient, x, "tanh");
    case relu: break;
  }
  return at::threshold_backward(gradient, x, 0);
}

}  // namespace pp::model::ops
