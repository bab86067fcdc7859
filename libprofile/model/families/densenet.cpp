// DenseNet-121 (Huang et al., Densely connected convolutional networks, 2017, table 1) with torchvision's layer
// names. What a block has so far is one tensor that every layer of it lengthens.
#include <array>

#include "libprofile/model/families/builder.h"

namespace pp::model {
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

std::string add_block(GraphBuilder& builder, const std::string& name, std::string x, int layers,
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
    x = add_block(builder, numbered("features.denseblock", block), x, kDepths[block], growth);
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
