// ResNet (He et al., Deep residual learning for image recognition, 2016), ResNeXt (Xie et al., Aggregated
// residual transformations for deep neural networks, 2017) and wide ResNet (Zagoruyko, Komodakis, Wide residual
// networks, 2016) with torchvision's layer names and its stride: in bottlenecks the 3x3 convolution halves the
// image
// ("v1.5"). torchvision uses one relu module several times; here each use is a layer, relu1, relu2, ...
#include <algorithm>
#include <array>

#include "libprofile/model/families/builder.h"

namespace pp::model {
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

}  // namespace pp::model
