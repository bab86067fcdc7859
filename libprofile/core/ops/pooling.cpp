// Rows of pools, and of their opposite.
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

/// One operation per element of the window, maximum and mean alike.
OpResult infer_pool2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Window window{integer(attributes, "kernel_size"), integer(attributes, "stride"),
                      integer(attributes, "padding"), 1, boolean(attributes, "ceil_mode")};
  if (window.padding > window.kernel / 2) {
    throw Error(ErrorKind::data, "padding " + std::to_string(window.padding) +
                                     " is more than half of kernel_size " + std::to_string(window.kernel) +
                                     "; use at most " + std::to_string(window.kernel / 2));
  }
  const Shape& in = inputs[0].shape;
  TensorType output{{in[0], positions(in[1], window), positions(in[2], window)}, inputs[0].dtype};
  const double area = static_cast<double>(window.kernel) * static_cast<double>(window.kernel);
  const Flops flops(area * elements(output));
  return {{std::move(output)}, {}, {}, flops};
}

/// An index for each output.
OpInside max_pool_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const TensorType output = infer_pool2d(attributes, inputs).outputs[0];
  return {.kept_bytes = static_cast<double>(size_of(DType::int64)) * elements(output)};
}

OpResult infer_adaptive_avg_pool2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const std::int64_t size = integer(attributes, "output_size");
  // Each input element is added once (windows overlap only where the size does not divide), each output divided
  // once.
  TensorType output{{inputs[0].shape[0], size, size}, inputs[0].dtype};
  const Flops flops(elements(inputs[0]) + elements(output));
  return {{std::move(output)}, {}, {}, flops};
}

/// `cost` operations per element of the output.
template <int cost>
OpResult infer_upsample2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Shape& in = inputs[0].shape;
  const std::int64_t factor = integer(attributes, "scale_factor");
  TensorType output{{in[0], factor * in[1], factor * in[2]}, inputs[0].dtype};
  const Flops flops(cost * elements(output));
  return {{std::move(output)}, {}, {}, flops};
}

std::vector<AttributeSpec> pool_attributes() {
  return {required_integer("kernel_size", 1, kMaxSize, "side of the square window"),
          integer_like("stride", "kernel_size", 1, kMaxSize, "step of the window"),
          integer_attribute("padding", 0, 0, kMaxSize, "border on every side, at most half of kernel_size"),
          flag_attribute("ceil_mode", false, "a last window may hang over the edge, if it starts inside")};
}

std::vector<AttributeSpec> avg_pool_attributes() {
  std::vector<AttributeSpec> attributes = pool_attributes();
  attributes.push_back(flag_attribute("count_include_pad", true, "padding counts as zeros; false: not at all"));
  return attributes;
}

AttributeSpec scale_factor() {
  return integer_attribute("scale_factor", 2, 1, 1024, "height and width of the output in those of the input");
}

}  // namespace

std::vector<OpRow> pooling_ops() {
  return {
      {.name = "max_pool2d",
       .summary = "maximum of each window; padding counts as -infinity",
       .shapes = "[c, h, w] -> [c, h', w']",
       .flops = "kernel_size² per output",
       .attributes = pool_attributes(),
       .work = {.keeps = OpWork::Keeps::inputs, .inside = max_pool_inside},
       .infer = infer_pool2d},
      {.name = "avg_pool2d",
       .summary = "mean of each window",
       .shapes = "as max_pool2d; padding counts as zeros, or not at all",
       .flops = "kernel_size² per output",
       .attributes = avg_pool_attributes(),
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pool2d},
      {.name = "adaptive_avg_pool2d",
       .summary = "mean over as many windows as the output has pixels",
       .shapes = "[c, h, w] -> [c, output_size, output_size]",
       .flops = "input + output elements",
       .attributes = {required_integer("output_size", 1, kMaxSize, "side of the square output")},
       .infer = infer_adaptive_avg_pool2d},
      {.name = "upsample_nearest2d",
       .summary = "repeats each pixel",
       .shapes = "[c, h, w] -> [c, scale_factor h, scale_factor w]",
       .flops = "0",
       .attributes = {scale_factor()},
       .infer = infer_upsample2d<0>},
      {.name = "upsample_bilinear2d",
       .summary = "interpolates between the four nearest pixels",
       .shapes = "[c, h, w] -> [c, scale_factor h, scale_factor w]",
       .flops = "8 per output",
       .attributes = {scale_factor(),
                      flag_attribute("align_corners", false, "the outermost pixels keep their places")},
       .infer = infer_upsample2d<8>},
  };
}

}  // namespace pp::detail
