// VGG (Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, 2015;
// configurations A, B, D and E), with torchvision's layer names. The classifier starts from at most 7x7
// features; smaller images have fewer (image/32), where torchvision would repeat them.
#include "libprofile/model/families/vgg.h"

#include <algorithm>
#include <array>

namespace pp::model {
namespace {

constexpr std::array<std::int64_t, 5> kChannels{64, 128, 256, 512, 512};

}  // namespace

std::vector<std::string> add_vgg_features(GraphBuilder& builder, std::string x, const VggDepths& depths,
                                          bool batch_norm) {
  std::vector<std::string> pools;
  int position = 0;  // within torchvision's Sequential
  const auto name = [&] { return "features." + std::to_string(position++); };
  for (std::size_t block = 0; block < depths.size(); ++block) {
    for (int i = 0; i < depths[block]; ++i) {
      x = builder.conv2d(name(), x,
                         {.out_channels = kChannels[block], .kernel = 3, .padding = 1, .bias = true});
      if (batch_norm) x = builder.add(name(), "batch_norm2d", {x});
      x = builder.add(name(), "relu", {x});
    }
    x = builder.pool2d(name(), "max_pool2d", x, 2, 2, 0);
    pools.push_back(x);
  }
  return pools;
}

namespace {

ModelGraph build_vgg(GraphBuilder builder, const Arguments& arguments, const VggDepths& depths) {
  const std::int64_t image = arguments.whole("image");
  const std::int64_t width = arguments.whole("width");
  const double dropout = arguments.number("dropout");
  std::string x = builder.input("image", {{3, image, image}});
  x = add_vgg_features(builder, std::move(x), depths, arguments.whole("batch_norm") == 1).back();
  x = builder.add("avgpool", "adaptive_avg_pool2d", {x},
                  {{"output_size", std::min<std::int64_t>(7, image / 32)}});
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("classifier.0", x, width);
  x = builder.add("classifier.1", "relu", {x});
  x = builder.dropout("classifier.2", x, dropout);
  x = builder.linear("classifier.3", x, width);
  x = builder.add("classifier.4", "relu", {x});
  x = builder.dropout("classifier.5", x, dropout);
  x = builder.linear("classifier.6", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace

ModelGraph build_vgg11(GraphBuilder builder, const Arguments& arguments) {
  return build_vgg(std::move(builder), arguments, {1, 1, 2, 2, 2});
}
ModelGraph build_vgg13(GraphBuilder builder, const Arguments& arguments) {
  return build_vgg(std::move(builder), arguments, {2, 2, 2, 2, 2});
}
ModelGraph build_vgg16(GraphBuilder builder, const Arguments& arguments) {
  return build_vgg(std::move(builder), arguments, kVgg16);
}
ModelGraph build_vgg19(GraphBuilder builder, const Arguments& arguments) {
  return build_vgg(std::move(builder), arguments, {2, 2, 4, 4, 4});
}

}  // namespace pp::model
