// Rows that keep the shape and treat every element alike, or every last dimension.
#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

/// `cost` operations per element.
template <int cost>
OpResult infer_pointwise(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  return {{inputs[0]}, {}, {}, Flops(cost * elements(inputs[0]))};
}

/// By erf 5: divide, erf, add, two products. By tanh 9: the cubic inside it takes five.
OpResult infer_gelu(const Attributes& attributes, std::span<const TensorType> inputs) {
  return boolean(attributes, "tanh") ? infer_pointwise<9>(attributes, inputs)
                                     : infer_pointwise<5>(attributes, inputs);
}

OpResult infer_softmax(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_last_dimension(inputs, "[..., width]");
  // Maximum, subtract, exponential, sum, divide.
  return {{inputs[0]}, {}, {}, Flops(5.0 * elements(inputs[0]))};
}

}  // namespace

std::vector<OpRow> activation_ops() {
  return {
      {.name = "relu",
       .summary = "max(x, 0)",
       .shapes = "any -> the same",
       .flops = "1 per element",
       .work = {.keeps = OpWork::Keeps::output},
       .infer = infer_pointwise<1>},
      {.name = "relu6",
       .summary = "x between 0 and 6",
       .shapes = "any -> the same",
       .flops = "2 per element",
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pointwise<2>},
      {.name = "leaky_relu",
       .summary = "x where positive, negative_slope * x elsewhere",
       .shapes = "any -> the same",
       .flops = "2 per element",
       .attributes = {number_attribute("negative_slope", 0.01, 0, 1, "slope below 0")},
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pointwise<2>},
      {.name = "sigmoid",
       .summary = "1 / (1 + exp(-x))",
       .shapes = "any -> the same",
       .flops = "1 per element",
       .work = {.keeps = OpWork::Keeps::output},
       .infer = infer_pointwise<1>},
      {.name = "silu",
       .summary = "x * sigmoid(x)",
       .shapes = "any -> the same",
       .flops = "2 per element",
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pointwise<2>},
      {.name = "hardsigmoid",
       .summary = "min(max(x / 6 + 1/2, 0), 1)",
       .shapes = "any -> the same",
       .flops = "4 per element",
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pointwise<4>},
      {.name = "hardswish",
       .summary = "x * hardsigmoid(x)",
       .shapes = "any -> the same",
       .flops = "5 per element",
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pointwise<5>},
      {.name = "tanh",
       .summary = "hyperbolic tangent",
       .shapes = "any -> the same",
       .flops = "1 per element",
       .work = {.keeps = OpWork::Keeps::output},
       .infer = infer_pointwise<1>},
      {.name = "gelu",
       .summary = "x * Phi(x), exact (by erf) or by tanh",
       .shapes = "any -> the same; exact, by erf, or approximated by tanh",
       .flops = "5 per element, 9 by tanh",
       .attributes = {flag_attribute("tanh", false, "the approximation with tanh")},
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_gelu},
      {.name = "softmax",
       .summary = "exp(x) / sum exp(x) over the last dimension",
       .shapes = "[..., d] -> the same, over the last dimension",
       .flops = "5 per element",
       .work = {.keeps = OpWork::Keeps::output},
       .infer = infer_softmax},
  };
}

}  // namespace pp::detail
