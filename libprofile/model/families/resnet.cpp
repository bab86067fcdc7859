// ResNet (He et al., Deep residual learning for image recognition, 2016) with torchvision's layer names and its
// stride: in bottlenecks the 3x3 convolution halves the image ("v1.5"). torchvision uses one relu module
// several times; here each use is a layer, relu1, relu2, ...
#include <array>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

enum class Block { basic, bottleneck };

struct Config {
  Block block;
  std::array<int, 4> depths;
};

/// Basic blocks end with `channels`, bottlenecks with four times as many.
constexpr std::int64_t expansion(Block block) { return block == Block::basic ? 1 : 4; }

std::string add_conv_norm(GraphBuilder& builder, const std::string& conv, const std::string& norm,
                          const std::string& x, std::int64_t channels, std::int64_t kernel,
                          std::int64_t stride) {
  return builder.add(norm, "batch_norm2d",
                     {builder.conv2d(conv, x, channels, kernel, stride, kernel / 2, false)});
}

/// The branch that is added to the shortcut; ends without relu.
std::string add_branch(GraphBuilder& builder, const std::string& name, std::string x, Block block,
                       std::int64_t channels, std::int64_t stride) {
  const auto step = [&](const std::string& i, std::int64_t width, std::int64_t kernel,
                        std::int64_t step_stride) {
    return add_conv_norm(builder, name + ".conv" + i, name + ".bn" + i, x, width, kernel, step_stride);
  };
  const auto relu = [&](const std::string& i) { return builder.add(name + ".relu" + i, "relu", {x}); };
  if (block == Block::basic) {
    x = step("1", channels, 3, stride);
    x = relu("1");
    return step("2", channels, 3, 1);
  }
  x = step("1", channels, 1, 1);
  x = relu("1");
  x = step("2", channels, 3, stride);
  x = relu("2");
  return step("3", channels * expansion(block), 1, 1);
}

/// `downsample`: the shortcut changes shape, by a 1x1 convolution.
std::string add_block(GraphBuilder& builder, const std::string& name, const std::string& x, Block block,
                      std::int64_t channels, std::int64_t stride, bool downsample) {
  const std::string branch = add_branch(builder, name, x, block, channels, stride);
  std::string shortcut = x;
  if (downsample) {
    shortcut = add_conv_norm(builder, name + ".downsample.0", name + ".downsample.1", x,
                             channels * expansion(block), 1, stride);
  }
  const std::string sum = builder.add(name + ".add", "add", {branch, shortcut});
  return builder.add(name + (block == Block::basic ? ".relu2" : ".relu3"), "relu", {sum});
}

ModelGraph build_resnet(GraphBuilder builder, const Arguments& arguments, const Config& config) {
  const std::int64_t image = arguments.whole("image");
  const std::int64_t width = arguments.whole("width");
  std::string x = builder.input("image", {{3, image, image}});
  x = add_conv_norm(builder, "conv1", "bn1", x, width, 7, 2);
  x = builder.add("relu", "relu", {x});
  x = builder.pool2d("maxpool", "max_pool2d", x, 3, 2, 1);
  std::int64_t channels = width;
  for (std::size_t group = 0; group < config.depths.size(); ++group, channels *= 2) {
    for (int i = 0; i < config.depths[group]; ++i) {
      const std::string name = "layer" + std::to_string(group + 1) + "." + std::to_string(i);
      const bool halve = group > 0 && i == 0;
      const bool widen = i == 0 && (group > 0 || config.block == Block::bottleneck);
      x = add_block(builder, name, x, config.block, channels, halve ? 2 : 1, widen);
    }
  }
  x = builder.add("avgpool", "adaptive_avg_pool2d", {x}, {{"output_size", std::int64_t{1}}});
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("fc", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace

ModelGraph build_resnet18(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::basic, {2, 2, 2, 2}});
}
ModelGraph build_resnet50(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 6, 3}});
}
ModelGraph build_resnet101(GraphBuilder builder, const Arguments& arguments) {
  return build_resnet(std::move(builder), arguments, {Block::bottleneck, {3, 4, 23, 3}});
}

}  // namespace pp::model
