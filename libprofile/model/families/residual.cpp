// Image networks whose blocks add to, or lengthen, what they were given.
#include <algorithm>
#include <array>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// ResNet (He et al., Deep residual learning for image recognition, 2016), ResNeXt (Xie et al., Aggregated
// residual transformations for deep neural networks, 2017) and wide ResNet (Zagoruyko, Komodakis, Wide residual
// networks, 2016) with torchvision's layer names and its stride: in bottlenecks the 3x3 convolution halves the
// image ("v1.5"). torchvision uses one relu module several times; here each use is a layer, relu1, relu2, ...

namespace {

enum class Block { basic, bottleneck };

struct Config {
  Block block;
  std::array<int, 4> depths;
  std::int64_t groups = 1;    ///< of a bottleneck's 3x3 convolution
  std::int64_t widening = 1;  ///< of a bottleneck's 3x3 convolution, against ResNet
};

/// Basic blocks end with `channels`, bottlenecks with four times as many.
constexpr std::int64_t expansion(Block block) { return block == Block::basic ? 1 : 4; }

/// The convolution has no bias; odd kernels keep the image's size.
std::string add_conv_norm(GraphBuilder& builder, const std::string& conv, const std::string& norm,
                          const std::string& x, Convolution convolution) {
  convolution.padding = convolution.kernel / 2;
  return builder.add(norm, "batch_norm2d", {builder.conv2d(conv, x, convolution)});
}

/// The branch that is added to the shortcut; ends without relu.
std::string add_branch(GraphBuilder& builder, const std::string& name, std::string x, const Config& config,
                       std::int64_t channels, std::int64_t stride) {
  const auto step = [&](const std::string& i, const Convolution& convolution) {
    return add_conv_norm(builder, name + ".conv" + i, name + ".bn" + i, x, convolution);
  };
  const auto relu = [&](const std::string& i) { return builder.add(name + ".relu" + i, "relu", {x}); };
  if (config.block == Block::basic) {
    x = step("1", {.out_channels = channels, .kernel = 3, .stride = stride});
    x = relu("1");
    return step("2", {.out_channels = channels, .kernel = 3});
  }
  const std::int64_t inner = channels * config.widening;
  x = step("1", {.out_channels = inner});
  x = relu("1");
  x = step("2", {.out_channels = inner, .kernel = 3, .stride = stride, .groups = config.groups});
  x = relu("2");
  return step("3", {.out_channels = channels * expansion(config.block)});
}

/// `downsample`: the shortcut changes shape, by a 1x1 convolution.
std::string add_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                      const Config& config, std::int64_t channels, std::int64_t stride, bool downsample) {
  const std::string branch = add_branch(builder, name, x, config, channels, stride);
  std::string shortcut = x;
  if (downsample) {
    shortcut = add_conv_norm(builder, name + ".downsample.0", name + ".downsample.1", x,
                             {.out_channels = channels * expansion(config.block), .stride = stride});
  }
  const std::string sum = builder.add(name + ".add", "add", {branch, shortcut});
  return builder.add(name + (config.block == Block::basic ? ".relu2" : ".relu3"), "relu", {sum});
}

ModelGraph build_resnet(GraphBuilder builder, const Arguments& arguments, const Config& config) {
  const std::int64_t image = arguments.whole("image");
  const std::int64_t width = arguments.whole("width");
  require_multiple(arguments, "width", std::max<std::int64_t>(1, config.groups / config.widening));
  std::string x = builder.input("image", {{3, image, image}});
  x = add_conv_norm(builder, "conv1", "bn1", x, {.out_channels = width, .kernel = 7, .stride = 2});
  x = builder.add("relu", "relu", {x});
  x = builder.pool2d("maxpool", "max_pool2d", x, 3, 2, 1);
  std::int64_t channels = width;
  for (std::size_t group = 0; group < config.depths.size(); ++group, channels *= 2) {
    for (int i = 0; i < config.depths[group]; ++i) {
      const std::string name = "layer" + std::to_string(group + 1) + "." + std::to_string(i);
      const bool halve = group > 0 && i == 0;
      const bool widen = i == 0 && (group > 0 || config.block == Block::bottleneck);
      x = add_block(builder, name, x, config, channels, halve ? 2 : 1, widen);
    }
  }
  x = builder.global_pool("avgpool", x);
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("fc", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace

ModelGraph build_resnet18(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::basic, {2, 2, 2, 2}});
}
ModelGraph build_resnet34(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::basic, {3, 4, 6, 3}});
}
ModelGraph build_resnet50(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 6, 3}});
}
ModelGraph build_resnet101(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 23, 3}});
}
ModelGraph build_resnet152(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 8, 36, 3}});
}
ModelGraph build_resnext50(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 6, 3}, 32, 2});
}
ModelGraph build_resnext101(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 23, 3}, 32, 4});
}
ModelGraph build_wide_resnet50(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 6, 3}, 1, 2});
}
ModelGraph build_wide_resnet101(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 23, 3}, 1, 2});
}

// MobileNetV2 (Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, 2018, table 2) with
// torchvision's layer names.

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
std::string add_convolution_step(GraphBuilder& builder, const std::string& prefix, std::string x,
                                 Convolution convolution) {
  convolution.padding = convolution.kernel / 2;
  x = builder.conv2d(prefix + ".0", x, convolution);
  x = builder.add(prefix + ".1", "batch_norm2d", {x});
  return builder.add(prefix + ".2", "relu6", {x});
}

/// Expands, convolves each channel for itself, and projects without activation.
std::string add_inverted_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                               std::int64_t in, const Group& group, std::int64_t stride) {
  int position = 0;
  const auto part = [&] { return name + ".conv." + std::to_string(position++); };
  const std::int64_t inner = in * group.expansion;
  std::string y = x;
  if (group.expansion > 1) y = add_convolution_step(builder, part(), y, {.out_channels = inner});
  y = add_convolution_step(builder, part(), y,
                           {.out_channels = inner, .kernel = 3, .stride = stride, .groups = inner});
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
  x = add_convolution_step(builder, name(), x, {.out_channels = channels, .kernel = 3, .stride = 2});
  for (const Group& group : kGroups) {
    for (int i = 0; i < group.blocks; ++i) {
      x = add_inverted_block(builder, name(), x, channels, group, i == 0 ? group.stride : 1);
      channels = group.channels;
    }
  }
  x = add_convolution_step(builder, name(), x, {.out_channels = 1280});
  x = builder.global_pool("avgpool", x);
  x = builder.add("flatten", "flatten", {x});
  x = builder.dropout("classifier.0", x, arguments.number("dropout"));
  x = builder.linear("classifier.1", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

// DenseNet-121 (Huang et al., Densely connected convolutional networks, 2017, table 1) with torchvision's layer
// names. What a block has so far is one tensor that every layer of it lengthens.

namespace {

constexpr std::array kDepths{6, 12, 24, 16};

std::string add_norm_relu(GraphBuilder& builder, const std::string& norm, const std::string& relu,
                          const std::string& x) {
  return builder.add(relu, "relu", {builder.add(norm, "batch_norm2d", {x})});
}

/// Batch norm, relu, 1x1 to four times the growth; batch norm, relu, 3x3 to the growth.
std::string add_dense_layer(GraphBuilder& builder, const std::string& name, const std::string& x,
                            std::int64_t growth) {
  std::string y = add_norm_relu(builder, name + ".norm1", name + ".relu1", x);
  y = builder.conv2d(name + ".conv1", y, {.out_channels = 4 * growth});
  y = add_norm_relu(builder, name + ".norm2", name + ".relu2", y);
  y = builder.conv2d(name + ".conv2", y, {.out_channels = growth, .kernel = 3, .padding = 1});
  return builder.add(name + ".concat", "concat", {x, y});
}

std::string add_dense_block(GraphBuilder& builder, const std::string& name, std::string x, int layers,
                            std::int64_t growth) {
  const auto layer = [&](int i) { return name + ".denselayer" + std::to_string(i); };
  for (int i = 1; i <= layers; ++i) x = add_dense_layer(builder, layer(i), x, growth);
  return x;
}

/// Between blocks: fewer channels, half the side.
std::string add_transition(GraphBuilder& builder, const std::string& name, std::string x,
                           std::int64_t channels) {
  x = add_norm_relu(builder, name + ".norm", name + ".relu", x);
  x = builder.conv2d(name + ".conv", x, {.out_channels = channels});
  return builder.pool2d(name + ".pool", "avg_pool2d", x, 2, 2, 0);
}

}  // namespace

ModelGraph build_densenet121(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t image = arguments.whole("image");
  const std::int64_t growth = arguments.whole("growth");
  std::int64_t channels = 2 * growth;
  std::string x = builder.input("image", {{3, image, image}});
  x = builder.conv2d("features.conv0", x, {.out_channels = channels, .kernel = 7, .stride = 2, .padding = 3});
  x = add_norm_relu(builder, "features.norm0", "features.relu0", x);
  x = builder.pool2d("features.pool0", "max_pool2d", x, 3, 2, 1);
  const auto numbered = [](const char* name, std::size_t block) { return name + std::to_string(block + 1); };
  for (std::size_t block = 0; block < kDepths.size(); ++block) {
    x = add_dense_block(builder, numbered("features.denseblock", block), x, kDepths[block], growth);
    if (block + 1 == kDepths.size()) break;
    channels = (channels + kDepths[block] * growth) / 2;
    x = add_transition(builder, numbered("features.transition", block), x, channels);
  }
  x = add_norm_relu(builder, "features.norm5", "relu", x);
  x = builder.global_pool("avgpool", x);
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("classifier", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
