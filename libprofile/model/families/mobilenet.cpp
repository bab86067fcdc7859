// MobileNetV2 (Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, 2018, table 2) with
// torchvision's layer names.
#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

/// Blocks of one resolution: the first has the stride, the others 1.
struct Group {
  std::int64_t expansion, channels;
  int blocks;
  std::int64_t stride;
};
constexpr Group kGroups[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                             {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

/// Convolution, batch norm, relu6; named `prefix.0`, `prefix.1`, `prefix.2`.
std::string add_step(GraphBuilder& builder, const std::string& prefix, std::string x, Convolution convolution) {
  convolution.padding = convolution.kernel / 2;
  x = builder.conv2d(prefix + ".0", x, convolution);
  x = builder.add(prefix + ".1", "batch_norm2d", {x});
  return builder.add(prefix + ".2", "relu6", {x});
}

/// Expands, convolves each channel for itself, and projects without activation.
std::string add_block(GraphBuilder& builder, const std::string& name, const std::string& x, std::int64_t in,
                      const Group& group, std::int64_t stride) {
  int position = 0;
  const auto part = [&] { return name + ".conv." + std::to_string(position++); };
  const std::int64_t inner = in * group.expansion;
  std::string y = x;
  if (group.expansion > 1) y = add_step(builder, part(), y, {.out_channels = inner});
  y = add_step(builder, part(), y, {.out_channels = inner, .kernel = 3, .stride = stride, .groups = inner});
  y = builder.conv2d(part(), y, {.out_channels = group.channels});
  y = builder.add(part(), "batch_norm2d", {y});
  return stride == 1 && in == group.channels ? builder.add(name + ".add", "add", {x, y}) : y;
}

}  // namespace

ModelGraph build_mobilenet_v2(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t image = arguments.whole("image");
  int position = 0;
  const auto name = [&] { return "features." + std::to_string(position++); };
  std::string x = builder.input("image", {{3, image, image}});
  std::int64_t channels = 32;
  x = add_step(builder, name(), x, {.out_channels = channels, .kernel = 3, .stride = 2});
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.blocks; ++i) {
      x = add_block(builder, name(), x, channels, group, i == 0 ? group.stride : 1);
      channels = group.channels;
    }
  }
  x = add_step(builder, name(), x, {.out_channels = 1280});
  x = builder.global_pool("avgpool", x);
  x = builder.add("flatten", "flatten", {x});
  x = builder.dropout("classifier.0", x, arguments.number("dropout"));
  x = builder.linear("classifier.1", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
