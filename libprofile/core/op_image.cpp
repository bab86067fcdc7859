// Rows of the op table for images, [channels, height, width]: convolution, batch norm, pooling.
#include <string>
#include <utility>

#include "libprofile/core/op_rows.h"

namespace pp::detail {
namespace {

constexpr const char* kImage = "three dimensions, [channels, height, width]";

struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
};

/// Positions of the window along one side: floor((size + 2 padding - dilation (kernel-1) - 1) / stride) + 1.
std::int64_t positions(std::int64_t size, const Window& window) {
  const std::int64_t reach = window.dilation * (window.kernel - 1) + 1;
  const std::int64_t padded = size + 2 * window.padding;
  if (reach > padded) {
    throw Error(ErrorKind::data, "kernel_size " + std::to_string(window.kernel) + " reaches over " +
                                     std::to_string(reach) + " pixels, but the padded input has " +
                                     std::to_string(padded) +
                                     "; use a smaller kernel, more padding or a larger image");
  }
  return (padded - reach) / window.stride + 1;
}

OpResult infer_conv2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Shape& in = inputs[0].shape;
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  const std::int64_t kernel = integer(attributes, "kernel_size");
  if (in[0] % groups != 0 || out_channels % groups != 0) {
    throw Error(ErrorKind::data, "groups " + std::to_string(groups) + " must divide the input's channels, " +
                                     std::to_string(in[0]) + ", and out_channels, " +
                                     std::to_string(out_channels));
  }
  const Window window{kernel, integer(attributes, "stride"), integer(attributes, "padding"),
                      integer(attributes, "dilation")};
  const bool bias = boolean(attributes, "bias");
  const std::int64_t in_channels = in[0] / groups;  // that one output channel sees
  OpResult result{{{{out_channels, positions(in[1], window), positions(in[2], window)}, inputs[0].dtype}},
                  {{"weight", {out_channels, in_channels, kernel, kernel}}},
                  {},
                  {}};
  if (bias) result.parameters.push_back({"bias", {out_channels}});
  const double multiply_adds =
      static_cast<double>(in_channels) * static_cast<double>(kernel) * static_cast<double>(kernel);
  result.forward_flops = Flops(elements(result.outputs[0]) * (2.0 * multiply_adds + (bias ? 1 : 0)));
  return result;
}

OpResult infer_batch_norm2d(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Shape channels{inputs[0].shape[0]};
  // Mean 1, variance 3 (subtract, multiply, add), normalise and scale 4.
  return {{inputs[0]},
          {{"weight", channels}, {"bias", channels}},
          {{"running_mean", channels}, {"running_var", channels}},
          Flops(8.0 * elements(inputs[0]))};
}

/// One operation per element of the window, maximum and mean alike.
OpResult infer_pool2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Window window{integer(attributes, "kernel_size"), integer(attributes, "stride"),
                      integer(attributes, "padding"), 1};
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

std::vector<AttributeSpec> pool_attributes() {
  return {required_integer("kernel_size", 1, kMaxSize, "side of the square window"),
          integer_like("stride", "kernel_size", 1, kMaxSize, "step of the window"),
          integer_attribute("padding", 0, 0, kMaxSize, "border on every side, at most half of kernel_size")};
}

}  // namespace

std::vector<OpRow> image_ops() {
  return {
      {"conv2d",
       "convolution of an image with square kernels",
       1,
       1,
       {required_integer("out_channels", 1, kMaxSize, "channels of the output"),
        required_integer("kernel_size", 1, kMaxSize, "side of the square kernel"),
        integer_attribute("stride", 1, 1, kMaxSize, "step of the kernel"),
        integer_attribute("padding", 0, 0, kMaxSize, "zeros added on every side"),
        integer_attribute("dilation", 1, 1, kMaxSize, "distance of the kernel's elements"),
        integer_attribute("groups", 1, 1, kMaxSize, "groups of channels that do not mix"),
        flag_attribute("bias", true, "add one value per output channel")},
       infer_conv2d},
      {"batch_norm2d",
       "normalises each channel over the micro-batch; running statistics in evaluation",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance"),
        number_attribute("momentum", 0.1, 0, 1, "share of the new value in the running statistics")},
       infer_batch_norm2d},
      {"max_pool2d", "maximum of each window; padding counts as -infinity", 1, 1, pool_attributes(),
       infer_pool2d},
      {"avg_pool2d", "mean of each window; padding counts as zeros", 1, 1, pool_attributes(), infer_pool2d},
      {"adaptive_avg_pool2d",
       "mean over as many windows as the output has pixels",
       1,
       1,
       {required_integer("output_size", 1, kMaxSize, "side of the square output")},
       infer_adaptive_avg_pool2d},
  };
}

}  // namespace pp::detail
