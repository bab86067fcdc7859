// Rows of the op table for images, [channels, height, width]: convolution, norms, pooling, upsampling.
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

constexpr const char* kImage = "three dimensions, [channels, height, width]";

struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;  ///< keep a last window that hangs over the edge, if it starts inside
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
  const std::int64_t whole = (padded - reach) / window.stride + 1;
  const bool rest = (padded - reach) % window.stride != 0;
  const bool starts_inside = whole * window.stride < size + window.padding;
  return whole + (window.ceil && rest && starts_inside ? 1 : 0);
}

void require_groups(std::int64_t groups, std::int64_t in, std::int64_t out) {
  if (in % groups == 0 && out % groups == 0) return;
  throw Error(ErrorKind::data, "groups " + std::to_string(groups) + " must divide the input's channels, " +
                                   std::to_string(in) + ", and out_channels, " + std::to_string(out));
}

OpResult infer_conv2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Shape& in = inputs[0].shape;
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  require_groups(groups, in[0], out_channels);
  const std::int64_t dilation = integer(attributes, "dilation");
  const Window rows{integer(attributes, "kernel_size"), integer(attributes, "stride"),
                    integer(attributes, "padding"), dilation};
  const Window columns{integer(attributes, "kernel_width"), integer(attributes, "stride"),
                       integer(attributes, "padding_width"), dilation};
  const bool bias = boolean(attributes, "bias");
  const std::int64_t in_channels = in[0] / groups;  // that one output channel sees
  OpResult result{{{{out_channels, positions(in[1], rows), positions(in[2], columns)}, inputs[0].dtype}},
                  {{"weight", {out_channels, in_channels, rows.kernel, columns.kernel}}},
                  {},
                  {}};
  if (bias) result.parameters.push_back({"bias", {out_channels}});
  const double multiply_adds =
      static_cast<double>(in_channels) * static_cast<double>(rows.kernel) * static_cast<double>(columns.kernel);
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

OpResult infer_batch_norm1d(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[0].shape.empty() || inputs[0].shape.size() > 2)
    refuse_input(0, inputs[0], "one or two dimensions, [channels] or [channels, length]");
  const Shape channels{inputs[0].shape[0]};
  return {{inputs[0]},
          {{"weight", channels}, {"bias", channels}},
          {{"running_mean", channels}, {"running_var", channels}},
          Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_group_norm(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  if (inputs[0].shape.empty()) refuse_input(0, inputs[0], "at least one dimension, [channels, ...]");
  const std::int64_t groups = integer(attributes, "num_groups");
  const Shape channels{inputs[0].shape[0]};
  if (channels[0] % groups != 0) {
    throw Error(ErrorKind::data, "num_groups " + std::to_string(groups) + " must divide the channels, " +
                                     std::to_string(channels[0]));
  }
  return {{inputs[0]}, {{"weight", channels}, {"bias", channels}}, {}, Flops(8.0 * elements(inputs[0]))};
}

OpResult infer_conv1d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 2, "two dimensions, [channels, length]");
  const Shape& in = inputs[0].shape;
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  require_groups(groups, in[0], out_channels);
  const Window window{integer(attributes, "kernel_size"), integer(attributes, "stride"),
                      integer(attributes, "padding"), integer(attributes, "dilation")};
  const bool bias = boolean(attributes, "bias");
  const std::int64_t in_channels = in[0] / groups;
  OpResult result{{{{out_channels, positions(in[1], window)}, inputs[0].dtype}},
                  {{"weight", {out_channels, in_channels, window.kernel}}},
                  {},
                  {}};
  if (bias) result.parameters.push_back({"bias", {out_channels}});
  const double multiply_adds = static_cast<double>(in_channels) * static_cast<double>(window.kernel);
  result.forward_flops = Flops(elements(result.outputs[0]) * (2.0 * multiply_adds + (bias ? 1 : 0)));
  return result;
}

OpResult infer_conv_transpose2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  const Shape& in = inputs[0].shape;
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  require_groups(groups, in[0], out_channels);
  const std::int64_t kernel = integer(attributes, "kernel_size"), stride = integer(attributes, "stride");
  const std::int64_t more = integer(attributes, "output_padding");
  if (more >= stride)
    throw Error(ErrorKind::data,
                "output_padding " + std::to_string(more) + " must be below stride, " + std::to_string(stride));
  const auto side = [&](std::int64_t size) {
    const std::int64_t out = (size - 1) * stride - 2 * integer(attributes, "padding") + kernel + more;
    if (out >= 1) return out;
    throw Error(ErrorKind::data, "padding " + std::to_string(integer(attributes, "padding")) +
                                     " leaves nothing of the output; use less");
  };
  const bool bias = boolean(attributes, "bias");
  OpResult result{{{{out_channels, side(in[1]), side(in[2])}, inputs[0].dtype}},
                  {{"weight", {in[0], out_channels / groups, kernel, kernel}}},
                  {},
                  {}};
  if (bias) result.parameters.push_back({"bias", {out_channels}});
  const double products =
      2.0 * static_cast<double>(out_channels / groups) * static_cast<double>(kernel * kernel);
  result.forward_flops = Flops(elements(inputs[0]) * products + (bias ? elements(result.outputs[0]) : 0.0));
  return result;
}

OpResult infer_instance_norm2d(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  return {{inputs[0]}, {}, {}, Flops(6.0 * elements(inputs[0]))};  // as batch_norm2d, without scaling
}

OpResult infer_local_response_norm(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  // Square, the window's sum, multiply-add, power, divide.
  const double per_element = 5.0 + static_cast<double>(integer(attributes, "size"));
  return {{inputs[0]}, {}, {}, Flops(per_element * elements(inputs[0]))};
}

OpResult infer_dropout2d(const Attributes&, std::span<const TensorType> inputs) {
  require_floating(inputs);
  require_rank(inputs, 0, 3, kImage);
  return {{inputs[0]}, {}, {}, Flops(elements(inputs[0]))};
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

std::vector<OpRow> norm_ops() {
  return {
      {"batch_norm2d",
       "normalises each channel over the micro-batch",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance"),
        number_attribute("momentum", 0.1, 0, 1, "share of the new value in the running statistics")},
       infer_batch_norm2d},
      {"batch_norm1d",
       "normalises each channel over the micro-batch",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance"),
        number_attribute("momentum", 0.1, 0, 1, "share of the new value in the running statistics")},
       infer_batch_norm1d},
      {"group_norm",
       "normalises groups of channels of each sample",
       1,
       1,
       {required_integer("num_groups", 1, kMaxSize, "groups; a divisor of the channels"),
        number_attribute("eps", 1e-5, 0, 1, "added to the variance")},
       infer_group_norm},
      {"instance_norm2d",
       "normalises each channel of each sample, without scaling",
       1,
       1,
       {number_attribute("eps", 1e-5, 0, 1, "added to the variance")},
       infer_instance_norm2d},
      {"local_response_norm",
       "divides by (k + alpha * mean of neighbours squared)^beta",
       1,
       1,
       {required_integer("size", 1, kMaxSize, "channels that are neighbours, itself included"),
        number_attribute("alpha", 1e-4, 0, 1e6, "weight of the squares"),
        number_attribute("beta", 0.75, 0, 1e6, "power"), number_attribute("k", 1, 1e-6, 1e6, "smallest sum")},
       infer_local_response_norm},
  };
}

}  // namespace

std::vector<OpRow> image_ops() {
  std::vector<OpRow> rows = norm_ops();
  const std::vector<OpRow> others{
      {"conv1d",
       "convolution of sequences",
       1,
       1,
       {required_integer("out_channels", 1, kMaxSize, "channels of the output"),
        required_integer("kernel_size", 1, kMaxSize, "length of the kernel"),
        integer_attribute("stride", 1, 1, kMaxSize, "step of the kernel"),
        integer_attribute("padding", 0, 0, kMaxSize, "zeros added at both ends"),
        integer_attribute("dilation", 1, 1, kMaxSize, "distance of the kernel's elements"),
        integer_attribute("groups", 1, 1, kMaxSize, "groups of channels that do not mix"),
        flag_attribute("bias", true, "add one value per output channel")},
       infer_conv1d},
      {"conv_transpose2d",
       "the transpose of a convolution, with square kernels",
       1,
       1,
       {required_integer("out_channels", 1, kMaxSize, "channels of the output"),
        required_integer("kernel_size", 1, kMaxSize, "side of the kernel"),
        integer_attribute("stride", 1, 1, kMaxSize, "distance of the input's pixels in the output"),
        integer_attribute("padding", 0, 0, kMaxSize, "cut off on every side of the output"),
        integer_attribute("output_padding", 0, 0, kMaxSize, "added below and right"),
        integer_attribute("groups", 1, 1, kMaxSize, "groups of channels that do not mix"),
        flag_attribute("bias", true, "add one value per output channel")},
       infer_conv_transpose2d},
      {"conv2d",
       "convolution; kernels are square without kernel_width",
       1,
       1,
       {required_integer("out_channels", 1, kMaxSize, "channels of the output"),
        required_integer("kernel_size", 1, kMaxSize, "height of the kernel"),
        integer_attribute("stride", 1, 1, kMaxSize, "step of the kernel"),
        integer_attribute("padding", 0, 0, kMaxSize, "zeros added on every side"),
        integer_attribute("dilation", 1, 1, kMaxSize, "distance of the kernel's elements"),
        integer_attribute("groups", 1, 1, kMaxSize, "groups of channels that do not mix"),
        flag_attribute("bias", true, "add one value per output channel"),
        integer_like("kernel_width", "kernel_size", 1, kMaxSize, "width of the kernel"),
        integer_like("padding_width", "padding", 0, kMaxSize, "zeros added left and right")},
       infer_conv2d},
      {"max_pool2d", "maximum of each window; padding counts as -infinity", 1, 1, pool_attributes(),
       infer_pool2d},
      {"avg_pool2d", "mean of each window", 1, 1, avg_pool_attributes(), infer_pool2d},
      {"adaptive_avg_pool2d",
       "mean over as many windows as the output has pixels",
       1,
       1,
       {required_integer("output_size", 1, kMaxSize, "side of the square output")},
       infer_adaptive_avg_pool2d},
      {"upsample_nearest2d", "repeats each pixel", 1, 1, {scale_factor()}, infer_upsample2d<0>},
      {"upsample_bilinear2d",
       "interpolates between the four nearest pixels",
       1,
       1,
       {scale_factor(), flag_attribute("align_corners", false, "the outermost pixels keep their places")},
       infer_upsample2d<8>},
      {"dropout2d",
       "dropout of whole channels",
       1,
       1,
       {number_attribute("p", 0.5, 0, 0.99, "probability")},
       infer_dropout2d},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

}  // namespace pp::detail
