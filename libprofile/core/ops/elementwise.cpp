// Rows that treat every element alike, or every last dimension, and those that combine elements: sums,
// products, means.
#include <limits>
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {

namespace {

/// `cost` operations per element.
template <int cost>
OpResult infer_pointwise(const Attributes&, std::span<const TensorType> inputs) {
  return {{inputs[0]}, {}, {}, Flops(cost * elements(inputs[0]))};
}

/// By erf 5: divide, erf, add, two products. By tanh 9: the cubic inside it takes five.
OpResult infer_gelu(const Attributes& attributes, std::span<const TensorType> inputs) {
  return boolean(attributes, "tanh") ? infer_pointwise<9>(attributes, inputs)
                                     : infer_pointwise<5>(attributes, inputs);
}

OpResult infer_gated_activation(const Attributes& attributes, std::span<const TensorType> inputs) {
  TensorType output = inputs[0];
  if (inputs.size() == 1) {
    if (output.shape.back() % 2 != 0) refuse_input(0, inputs[0], "an even width, the gate and what it is for");
    output.shape.back() /= 2;
  } else if (inputs[1] != inputs[0]) {
    refuse_input(1, inputs[1], "the type and shape of input 0, " + to_text(inputs[0].shape));
  }
  const auto activation = choice<GateActivation>(attributes, "activation");
  const double each = activation == GateActivation::gelu_tanh ? 9
                      : activation == GateActivation::gelu    ? 5
                      : activation == GateActivation::silu    ? 2
                                                              : 1;
  const Flops flops((each + 1) * elements(output));
  return {{std::move(output)}, {}, {}, flops};
}

OpResult infer_softmax(const Attributes&, std::span<const TensorType> inputs) {
  // Maximum, subtract, exponential, sum, divide.
  return {{inputs[0]}, {}, {}, Flops(5.0 * elements(inputs[0]))};
}

/// Each element by itself, whatever the shape.
OpRow pointwise(OpRow row) {
  if (row.shapes.empty()) row.shapes = "any -> the same";
  row.positions = Positions::apart;
  row.tensor = TensorSplit::elements;
  return row;
}

/// Sizes of 1 are repeated to meet others.
bool broadcast(Shape& shape, const Shape& other) {
  if (shape.size() != other.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != other[d] && shape[d] != 1 && other[d] != 1) return false;
    shape[d] = shape[d] == 1 ? other[d] : shape[d];
  }
  return true;
}

/// add and multiply
OpResult infer_elementwise(const Attributes&, std::span<const TensorType> inputs) {
  TensorType output = inputs[0];
  double flops = 0;
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].dtype != output.dtype || !broadcast(output.shape, inputs[i].shape)) {
      refuse_input(i, inputs[i],
                   "the type and shape of input 0, " + to_text(inputs[0].shape) + ", or sizes of 1");
    }
    if (too_large(output.shape)) refuse_input(i, inputs[i], "a result of at most 2^40 elements");
    flops += elements(output);
  }
  return {{std::move(output)}, {}, {}, Flops(flops)};
}

OpResult infer_mean(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::size_t dim = dimension(attributes, inputs);
  TensorType output = inputs[0];
  output.shape.erase(output.shape.begin() + static_cast<std::ptrdiff_t>(dim));
  // Each input element is added once, each output divided once.
  const Flops flops(elements(inputs[0]) + elements(output));
  return {{std::move(output)}, {}, {}, flops};
}

}  // namespace

std::vector<OpRow> elementwise_ops() {
  constexpr int kMany = std::numeric_limits<int>::max();
  return {
      pointwise({.name = "relu",
                 .summary = "max(x, 0)",
                 .flops = "1 per element",
                 .examples = {"3x4"},
                 .aten = "relu",
                 .work = {.keeps = OpWork::Keeps::output},
                 .infer = infer_pointwise<1>}),
      pointwise({.name = "relu6",
                 .summary = "x between 0 and 6",
                 .flops = "2 per element",
                 .examples = {"3x4"},
                 .aten = "relu6",
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_pointwise<2>}),
      pointwise({.name = "leaky_relu",
                 .summary = "x where positive, negative_slope * x elsewhere",
                 .flops = "2 per element",
                 .examples = {"3x4 negative_slope=0.2"},
                 .aten = "leaky_relu",
                 .attributes = {number_attribute("negative_slope", 0.01, 0, 1, "slope below 0")},
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_pointwise<2>}),
      pointwise({.name = "sigmoid",
                 .summary = "1 / (1 + exp(-x))",
                 .flops = "1 per element",
                 .examples = {"7"},
                 .aten = "sigmoid",
                 .work = {.keeps = OpWork::Keeps::output},
                 .infer = infer_pointwise<1>}),
      pointwise({.name = "silu",
                 .summary = "x * sigmoid(x)",
                 .flops = "2 per element",
                 .examples = {"7"},
                 .aten = "silu",
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_pointwise<2>}),
      pointwise({.name = "hardsigmoid",
                 .summary = "min(max(x / 6 + 1/2, 0), 1)",
                 .flops = "4 per element",
                 .examples = {"9"},
                 .aten = "hardsigmoid",
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_pointwise<4>}),
      pointwise({.name = "hardswish",
                 .summary = "x * hardsigmoid(x)",
                 .flops = "5 per element",
                 .examples = {"9"},
                 .aten = "hardswish",
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_pointwise<5>}),
      pointwise({.name = "tanh",
                 .summary = "hyperbolic tangent",
                 .flops = "1 per element",
                 .examples = {"7"},
                 .aten = "tanh",
                 .work = {.keeps = OpWork::Keeps::output},
                 .infer = infer_pointwise<1>}),
      pointwise({.name = "gelu",
                 .summary = "x * Phi(x), exact (by erf) or by tanh",
                 .shapes = "any -> the same; exact, by erf, or approximated by tanh",
                 .flops = "5 per element, 9 by tanh",
                 .examples = {"9", "9 tanh=true"},
                 .attributes = {flag_attribute("tanh", false, "the approximation with tanh")},
                 .work = {.keeps = OpWork::Keeps::inputs},
                 .infer = infer_gelu}),
      pointwise({.name = "soft_cap",
                 .summary = "cap * tanh(x / cap)",
                 .flops = "3 per element",
                 .examples = {"2x6 cap=0.8"},
                 .attributes = {number_attribute("cap", 30, 1e-6, 1e6, "no element is larger, up to the sign")},
                 .work = {.keeps = OpWork::Keeps::output},
                 .infer = infer_pointwise<3>}),
      {.name = "gated_activation",
       .summary = "activation(gate) * x: SwiGLU by silu, GeGLU by gelu",
       .shapes = "gate [..., d], x [..., d] -> the same; or both in one, [..., 2 d], the gate first",
       .flops = "2 per element by relu, 3 by silu, 6 by gelu, 10 by gelu_tanh",
       .examples = {"3x4 3x4", "3x4 3x4 activation=gelu", "3x8 activation=gelu_tanh", "6 activation=relu"},
       .max_inputs = 2,
       .input = kWidth,
       .attributes = {choice_attribute<GateActivation>("activation", "of the gate")},
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .work = {.keeps = OpWork::Keeps::inputs, .kernels = 2, .composed = OpWork::Composed::gate},
       .infer = infer_gated_activation},
      {.name = "softmax",
       .summary = "exp(x) / sum exp(x) over the last dimension",
       .shapes = "[..., d] -> the same, over the last dimension",
       .flops = "5 per element",
       .examples = {"2x6"},
       .input = kWidth,
       .work = {.keeps = OpWork::Keeps::output},
       .infer = infer_softmax},
      {.name = "add",
       .summary = "sum of two or more tensors; sizes of 1 are repeated",
       .shapes = "two or more of as many dimensions; sizes of 1 are repeated",
       .flops = "1 per element of each sum",
       .examples = {"3x2 3x2", "4 4 4", "3x1x2 1x4x2 1x1x1"},
       .min_inputs = 2,
       .max_inputs = kMany,
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.passes_gradients = true},
       .infer = infer_elementwise},
      {.name = "multiply",
       .summary = "product of two or more tensors; sizes of 1 are repeated",
       .shapes = "as add",
       .flops = "1 per element of each product",
       .examples = {"3x2 3x2 3x2"},
       .min_inputs = 2,
       .max_inputs = kMany,
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_elementwise},
      {.name = "mean",
       .summary = "mean over a dimension, which disappears",
       .shapes = "the shape without `dim` (counted without the batch)",
       .flops = "input + output elements",
       .examples = {"3x4", "4x6x5 dim=1"},
       .attributes = {dim_attribute()},
       .infer = infer_mean},
      pointwise({.name = "scale",
                 .summary = "factor * x + offset",
                 .shapes = "any -> the same, factor x + offset",
                 .flops = "2 per element",
                 .examples = {"3x4 factor=-1.5 offset=0.5"},
                 .attributes = {number_attribute("factor", 1, -1e6, 1e6, "multiplies every element"),
                                number_attribute("offset", 0, -1e6, 1e6, "is added to every element")},
                 .infer = infer_pointwise<2>}),
  };
}

}  // namespace pp::detail
