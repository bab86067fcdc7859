// Rows of products of matrices.
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_linear(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t in = inputs[0].shape.back();
  const std::int64_t out = integer(attributes, "out_features");
  const bool bias = boolean(attributes, "bias");
  OpResult result{{inputs[0]}, {{"weight", {out, in}}}, {}, {}};
  result.outputs[0].shape.back() = out;
  if (bias) result.parameters.push_back({"bias", {out}});
  result.forward_flops = Flops(elements(result.outputs[0]) * (2.0 * static_cast<double>(in) + (bias ? 1 : 0)));
  return result;
}

OpResult infer_bias(const Attributes&, std::span<const TensorType> inputs) {
  return {{inputs[0]}, {{"bias", {inputs[0].shape.back()}}}, {}, Flops(elements(inputs[0]))};
}

OpResult infer_matmul(const Attributes&, std::span<const TensorType> inputs) {
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.size() < 2) refuse_input(0, inputs[0], "[..., rows, inner]");
  const bool fits = b.size() == a.size() && leading(a) == leading(b) && b[b.size() - 2] == a.back();
  if (!fits || inputs[1].dtype != inputs[0].dtype) {
    refuse_input(1, inputs[1],
                 "[..., inner, columns] for " + to_text(a) + ", with its leading dimensions and type");
  }
  TensorType output = inputs[0];
  output.shape.back() = b.back();
  const Flops flops(2.0 * elements(output) * real(a.back()));
  return {{std::move(output)}, {}, {}, flops};
}

/// No weights: both factors have gradients.
OpInside matmul_inside(const Attributes&, std::span<const TensorType> inputs) {
  const double columns = real(inputs[1].shape.back());
  return {.flops = 2.0 * elements(inputs[0]) * columns};
}

}  // namespace

std::vector<OpRow> linear_ops() {
  return {
      {.name = "linear",
       .summary = "y = x W^T + b on the last dimension",
       .shapes = "[..., d] -> [..., out_features]",
       .flops = "2 d + bias per output",
       .examples = {"5 out_features=3", "4x5 out_features=2 bias=false"},
       .input = kFeatures,
       .attributes = {required_integer("out_features", 1, kMaxSize, "features of the output"),
                      flag_attribute("bias", true, "add b"), std_attribute()},
       .positions = Positions::apart,
       .tensor = TensorSplit::matrix,
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs, .adds_products = true},
       .infer = infer_linear},
      {.name = "bias",
       .summary = "adds a learned vector to the last dimension",
       .shapes = "[..., d] -> the same, plus a learned vector",
       .flops = "1 per element",
       .examples = {"3x4"},
       .input = kFeatures,
       .positions = Positions::apart,
       .tensor = TensorSplit::elements,
       .work = {.passes_gradients = true},
       .infer = infer_bias},
      {.name = "matmul",
       .summary = "products of the matrices in the last two dimensions",
       .shapes = "[..., l, d], [..., d, e] -> [..., l, e]",
       .flops = "2 d per output",
       .examples = {"2x3x4 2x4x5"},
       .min_inputs = 2,
       .max_inputs = 2,
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs, .inside = matmul_inside},
       .infer = infer_matmul},
  };
}

}  // namespace pp::detail
