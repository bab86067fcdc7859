// Rows of windows that slide over an image or a sequence: convolutions, pools, and what enlarges again.
#include <array>
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {

namespace {

void require_groups(std::int64_t groups, std::int64_t in, std::int64_t out) {
  if (in % groups == 0 && out % groups == 0) return;
  throw Error(ErrorKind::data, "groups " + std::to_string(groups) + " must divide the input's channels, " +
                                   std::to_string(in) + ", and out_channels, " + std::to_string(out));
}

/// `windows`: one per dimension behind the channels.
OpResult convolved(const Attributes& attributes, const TensorType& input, std::span<const Window> windows) {
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  require_groups(groups, input.shape[0], out_channels);
  const bool bias = boolean(attributes, "bias");
  Shape output{out_channels}, weight{out_channels, input.shape[0] / groups};
  double multiply_adds = static_cast<double>(weight[1]);
  for (std::size_t d = 0; d < windows.size(); ++d) {
    output.push_back(positions(input.shape[d + 1], windows[d]));
    weight.push_back(windows[d].kernel);
    multiply_adds *= static_cast<double>(windows[d].kernel);
  }
  OpResult result{{{std::move(output), input.dtype}}, {{"weight", std::move(weight)}}, {}, {}};
  if (bias) result.parameters.push_back({"bias", {out_channels}});
  result.forward_flops = Flops(elements(result.outputs[0]) * (2.0 * multiply_adds + (bias ? 1 : 0)));
  return result;
}

OpResult infer_conv1d(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Window window{integer(attributes, "kernel_size"), integer(attributes, "stride"),
                      integer(attributes, "padding"), integer(attributes, "dilation")};
  return convolved(attributes, inputs[0], std::array{window});
}

OpResult infer_conv2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t stride = integer(attributes, "stride"), dilation = integer(attributes, "dilation");
  const Window rows{integer(attributes, "kernel_size"), stride, integer(attributes, "padding"), dilation};
  const Window columns{integer(attributes, "kernel_width"), stride, integer(attributes, "padding_width"),
                       dilation};
  return convolved(attributes, inputs[0], std::array{rows, columns});
}

OpResult infer_conv_transpose2d(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Shape& in = inputs[0].shape;
  const std::int64_t out_channels = integer(attributes, "out_channels");
  const std::int64_t groups = integer(attributes, "groups");
  require_groups(groups, in[0], out_channels);
  const std::int64_t kernel = integer(attributes, "kernel_size"), stride = integer(attributes, "stride");
  const std::int64_t more = integer(attributes, "output_padding");
  if (more >= stride) {
    throw Error(ErrorKind::data,
                "output_padding " + std::to_string(more) + " must be below stride, " + std::to_string(stride));
  }
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
  const std::int64_t seen = out_channels / groups * kernel * kernel;  // by one input element
  const double products = 2.0 * static_cast<double>(seen);
  result.forward_flops = Flops(elements(inputs[0]) * products + (bias ? elements(result.outputs[0]) : 0.0));
  return result;
}

/// What all convolutions have, around what each has of its own. Documents list attributes in this order.
std::vector<AttributeSpec> convolution_attributes(std::vector<AttributeSpec> own,
                                                  std::vector<AttributeSpec> last = {}) {
  own.insert(own.begin(), required_integer("out_channels", 1, kMaxSize, "channels of the output"));
  own.push_back(integer_attribute("groups", 1, 1, kMaxSize, "groups of channels that do not mix"));
  own.push_back(flag_attribute("bias", true, "add one value per output channel"));
  own.insert(own.end(), last.begin(), last.end());
  return own;
}

/// One operation per element of the window, maximum and mean alike.
OpResult infer_pool2d(const Attributes& attributes, std::span<const TensorType> inputs) {
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

std::vector<OpRow> convolution_ops() {
  return {
      {.name = "conv1d",
       .summary = "convolution of sequences",
       .shapes = "[c, l] -> [out_channels, l']",
       .flops = "2 c/groups kernel_size + bias per output",
       .examples = {"4x7 out_channels=6 kernel_size=3 groups=2",
                    "3x8 out_channels=2 kernel_size=2 stride=2 padding=1 dilation=2 bias=false"},
       .input = {2, 2, "two dimensions, [channels, length]"},
       .attributes = convolution_attributes(
           {required_integer("kernel_size", 1, kMaxSize, "length of the kernel"),
            integer_attribute("stride", 1, 1, kMaxSize, "step of the kernel"),
            integer_attribute("padding", 0, 0, kMaxSize, "zeros added at both ends"),
            integer_attribute("dilation", 1, 1, kMaxSize, "distance of the kernel's elements")}),
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs},
       .infer = infer_conv1d},
      {.name = "conv2d",
       .summary = "convolution; kernels are square without kernel_width",
       .shapes = "[c, h, w] -> [out_channels, h', w']",
       .flops = "2 c/groups kernel_size kernel_width + bias per output",
       .examples = {"4x6x5 out_channels=6 kernel_size=3",
                    "4x6x5 out_channels=2 kernel_size=3 stride=2 padding=1 bias=false",
                    "4x6x5 out_channels=4 kernel_size=3 groups=4",
                    "4x6x5 out_channels=6 kernel_size=2 groups=2",
                    "4x6x5 out_channels=2 kernel_size=1 kernel_width=3 stride=2 padding_width=1"},
       .input = kImage,
       .attributes = convolution_attributes(
           {required_integer("kernel_size", 1, kMaxSize, "height of the kernel"),
            integer_attribute("stride", 1, 1, kMaxSize, "step of the kernel"),
            integer_attribute("padding", 0, 0, kMaxSize, "zeros added on every side"),
            integer_attribute("dilation", 1, 1, kMaxSize, "distance of the kernel's elements")},
           {integer_like("kernel_width", "kernel_size", 1, kMaxSize, "width of the kernel"),
            integer_like("padding_width", "padding", 0, kMaxSize, "zeros added left and right")}),
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs},
       .infer = infer_conv2d},
      {.name = "conv_transpose2d",
       .summary = "the transpose of a convolution, with square kernels",
       .shapes = "[c, h, w] -> [out_channels, h\", w\"]",
       .flops = "2 out_channels/groups kernel_size² per input + bias per output",
       .examples = {"4x6x5 out_channels=3 kernel_size=2 bias=false",
                    "4x6x5 out_channels=6 kernel_size=3 stride=2 padding=1 output_padding=1 groups=2"},
       .input = kImage,
       .attributes = convolution_attributes(
           {required_integer("kernel_size", 1, kMaxSize, "side of the kernel"),
            integer_attribute("stride", 1, 1, kMaxSize, "distance of the input's pixels in the output"),
            integer_attribute("padding", 0, 0, kMaxSize, "cut off on every side of the output"),
            integer_attribute("output_padding", 0, 0, kMaxSize, "added below and right")}),
       .work = {.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs},
       .infer = infer_conv_transpose2d},
      {.name = "max_pool2d",
       .summary = "maximum of each window; padding counts as -infinity",
       .shapes = "[c, h, w] -> [c, h', w']",
       .flops = "kernel_size² per output",
       .examples = {"4x6x5 kernel_size=2", "4x6x5 kernel_size=3 stride=2 padding=1",
                    "4x6x5 kernel_size=3 stride=2 ceil_mode=true"},
       .aten = "max_pool2d",
       .input = kImage,
       .attributes = pool_attributes(),
       .work = {.keeps = OpWork::Keeps::inputs, .inside = max_pool_inside},
       .infer = infer_pool2d},
      {.name = "avg_pool2d",
       .summary = "mean of each window",
       .shapes = "as max_pool2d; padding counts as zeros, or not at all",
       .flops = "kernel_size² per output",
       .examples = {"4x6x5 kernel_size=2", "4x6x5 kernel_size=3 stride=2 padding=1",
                    "4x6x5 kernel_size=3 stride=2 padding=1 ceil_mode=true count_include_pad=false"},
       .aten = "avg_pool2d",
       .input = kImage,
       .attributes = avg_pool_attributes(),
       .work = {.keeps = OpWork::Keeps::inputs},
       .infer = infer_pool2d},
      {.name = "adaptive_avg_pool2d",
       .summary = "mean over as many windows as the output has pixels",
       .shapes = "[c, h, w] -> [c, output_size, output_size]",
       .flops = "input + output elements",
       .examples = {"4x6x5 output_size=3"},
       .aten = "adaptive_avg_pool2d",
       .input = kImage,
       .attributes = {required_integer("output_size", 1, kMaxSize, "side of the square output")},
       .infer = infer_adaptive_avg_pool2d},
      {.name = "upsample_nearest2d",
       .summary = "repeats each pixel",
       .shapes = "[c, h, w] -> [c, scale_factor h, scale_factor w]",
       .flops = "0",
       .examples = {"4x6x5 scale_factor=3"},
       .input = kImage,
       .attributes = {scale_factor()},
       .infer = infer_upsample2d<0>},
      {.name = "upsample_bilinear2d",
       .summary = "interpolates between the four nearest pixels",
       .shapes = "[c, h, w] -> [c, scale_factor h, scale_factor w]",
       .flops = "8 per output",
       .examples = {"4x6x5", "4x6x5 scale_factor=3 align_corners=true"},
       .input = kImage,
       .attributes = {scale_factor(),
                      flag_attribute("align_corners", false, "the outermost pixels keep their places")},
       .infer = infer_upsample2d<8>},
  };
}

}  // namespace pp::detail
