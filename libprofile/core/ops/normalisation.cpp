// Rows of norms.
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_batch_norm(const Attributes&, std::span<const TensorType> inputs) {
  const Shape channels{inputs[0].shape[0]};
  // Mean 1, variance 3 (subtract, multiply, add), normalise and scale 4.
  return {{inputs[0]},
          {{"weight", channels}, {"bias", channels}},
          {{"running_mean", channels}, {"running_var", channels}},
          Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_group_norm(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t groups = integer(attributes, "num_groups");
  const Shape channels{inputs[0].shape[0]};
  if (channels[0] % groups != 0) {
    throw Error(ErrorKind::data, "num_groups " + std::to_string(groups) + " must divide the channels, " +
                                     std::to_string(channels[0]));
  }
  return {{inputs[0]}, {{"weight", channels}, {"bias", channels}}, {}, Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_instance_norm2d(const Attributes&, std::span<const TensorType> inputs) {
  return {{inputs[0]}, {}, {}, Flops(6.0 * elements(inputs[0]))};  // as batch norm, without scaling
}

OpResult infer_layer_norm(const Attributes&, std::span<const TensorType> inputs) {
  const Shape width{inputs[0].shape.back()};
  // As batch_norm2d: mean 1, variance 3, normalise and scale 4.
  return {{inputs[0]}, {{"weight", width}, {"bias", width}}, {}, Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_rms_norm(const Attributes&, std::span<const TensorType> inputs) {
  // Square and sum 2, normalise and scale 2.
  return {{inputs[0]}, {{"weight", {inputs[0].shape.back()}}}, {}, Flops(4.0 * elements(inputs[0]))};
}

OpResult infer_local_response_norm(const Attributes& attributes, std::span<const TensorType> inputs) {
  // Square, the window's sum, multiply-add, power, divide.
  const double per_element = 5.0 + static_cast<double>(integer(attributes, "size"));
  return {{inputs[0]}, {}, {}, Flops(per_element * elements(inputs[0]))};
}

/// Squares, their sums, the divisor.
OpInside local_response_norm_inside(const Attributes&, std::span<const TensorType> inputs) {
  return {.kept = 3 * elements(inputs[0]), .moved = 6 * elements(inputs[0])};
}

AttributeSpec epsilon(double value = 1e-5) {
  return number_attribute("eps", value, 0, 1, "added to the variance");
}

std::vector<AttributeSpec> batch_norm_attributes() {
  return {epsilon(),
          number_attribute("momentum", 0.1, 0, 1, "share of the new value in the running statistics")};
}

}  // namespace

std::vector<OpRow> normalisation_ops() {
  return {
      {.name = "batch_norm1d",
       .summary = "normalises each channel over the micro-batch",
       .shapes = "[c] or [c, l] -> the same; buffers running_mean, running_var",
       .flops = "8 per element",
       .examples = {"4", "4x3"},
       .input = {1, 2, "one or two dimensions, [channels] or [channels, length]"},
       .attributes = batch_norm_attributes(),
       .batch_statistics = true,
       .weight_gradient_with_input = true,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_batch_norm},
      {.name = "batch_norm2d",
       .summary = "normalises each channel over the micro-batch",
       .shapes = "[c, h, w] -> the same; buffers running_mean, running_var",
       .flops = "8 per element",
       .examples = {"4x6x5"},
       .input = kImage,
       .attributes = batch_norm_attributes(),
       .batch_statistics = true,
       .weight_gradient_with_input = true,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_batch_norm},
      {.name = "group_norm",
       .summary = "normalises groups of channels of each sample",
       .shapes = "[c, ...] -> the same, over groups of channels of each sample",
       .flops = "8 per element",
       .examples = {"4x6x5 num_groups=2"},
       .aten = "group_norm",
       .input = {1, kMostDimensions, "at least one dimension, [channels, ...]"},
       .attributes = {required_integer("num_groups", 1, kMaxSize, "groups; a divisor of the channels"),
                      epsilon()},
       .weight_gradient_with_input = true,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_group_norm},
      {.name = "instance_norm2d",
       .summary = "normalises each channel of each sample, without scaling",
       .shapes = "[c, h, w] -> the same, over each sample's channels, without parameters",
       .flops = "6 per element",
       .examples = {"4x6x5"},
       .input = kImage,
       .attributes = {epsilon()},
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_instance_norm2d},
      {.name = "layer_norm",
       .summary = "normalises the last dimension",
       .shapes = "[..., d] -> the same, over the last dimension",
       .flops = "8 per element",
       .examples = {"3x8"},
       .input = kWidth,
       .attributes = {epsilon()},
       .weight_gradient_with_input = true,
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_layer_norm},
      {.name = "rms_norm",
       .summary = "divides by the root of the mean square of the last dimension",
       .shapes = "[..., d] -> the same, over the last dimension, times weight + offset",
       .flops = "4 per element",
       .examples = {"3x8", "3x8 eps=0.1 offset=1.0"},
       .input = kWidth,
       .attributes = {number_attribute("eps", 1e-6, 0, 1, "added to the mean square"),
                      silent(number_attribute("offset", 0, -16, 16, "added to the weight (Gemma: 1)"))},
       .weight_gradient_with_input = true,
       .positions = Positions::apart,
       .tensor = TensorSplit::positions,
       .work = {.keeps = OpWork::Keeps::inputs, .composed = OpWork::Composed::norm},
       .infer = infer_rms_norm},
      {.name = "local_response_norm",
       .summary = "divides by (k + alpha * mean of neighbours squared)^beta",
       .shapes = "[c, h, w] -> the same, over neighbouring channels",
       .flops = "size + 5 per element",
       .examples = {"4x6x5 size=3 alpha=0.5 k=2.0", "4x6x5 size=2 alpha=0.5"},
       .input = kImage,
       .attributes = {required_integer("size", 1, kMaxSize, "channels that are neighbours, itself included"),
                      number_attribute("alpha", 1e-4, 0, 1e6, "weight of the squares"),
                      number_attribute("beta", 0.75, 0, 1e6, "power"),
                      number_attribute("k", 1, 1e-6, 1e6, "smallest sum")},
       .work = {.keeps = OpWork::Keeps::inputs, .kernels = 6, .inside = local_response_norm_inside},
       .infer = infer_local_response_norm},
  };
}

}  // namespace pp::detail
