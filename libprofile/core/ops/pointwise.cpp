// Rows of the op table that keep the shape and treat every element alike: activations, scale, dropout.
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

}  // namespace

std::vector<OpRow> pointwise_ops() {
  return {
      {"relu", "max(x, 0)", 1, 1, {}, infer_pointwise<1>},
      {"relu6", "x between 0 and 6", 1, 1, {}, infer_pointwise<2>},
      {"leaky_relu",
       "x where positive, negative_slope * x elsewhere",
       1,
       1,
       {number_attribute("negative_slope", 0.01, 0, 1, "slope below 0")},
       infer_pointwise<2>},
      {"sigmoid", "1 / (1 + exp(-x))", 1, 1, {}, infer_pointwise<1>},
      {"silu", "x * sigmoid(x)", 1, 1, {}, infer_pointwise<2>},
      {"hardsigmoid", "min(max(x / 6 + 1/2, 0), 1)", 1, 1, {}, infer_pointwise<4>},
      {"hardswish", "x * hardsigmoid(x)", 1, 1, {}, infer_pointwise<5>},
      {"tanh", "hyperbolic tangent", 1, 1, {}, infer_pointwise<1>},
      {"gelu",
       "x * Phi(x), exact (by erf) or by tanh",
       1,
       1,
       {flag_attribute("tanh", false, "the approximation with tanh")},
       infer_gelu},
      {"scale",
       "factor * x + offset",
       1,
       1,
       {number_attribute("factor", 1, -1e6, 1e6, "multiplies every element"),
        number_attribute("offset", 0, -1e6, 1e6, "is added to every element")},
       infer_pointwise<2>},
      {"dropout",
       "zeroes elements with probability p, scales the others",
       1,
       1,
       {number_attribute("p", 0.5, 0, 0.99, "probability")},
       infer_pointwise<2>},
      {"stochastic_depth",
       "zeroes whole samples with probability p, scales the others",
       1,
       1,
       {number_attribute("p", 0.5, 0, 0.99, "probability")},
       infer_pointwise<1>},
  };
}

}  // namespace pp::detail
