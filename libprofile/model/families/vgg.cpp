// VGG, and EAST, which has it as its trunk.
#include <algorithm>
#include <array>
#include <numbers>
#include <string>
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// VGG (Simonyan, Zisserman, Very deep convolutional networks for large-scale image recognition, 2015;
// configurations A, B, D and E), with torchvision's layer names. The classifier starts from at most 7x7
// features; smaller images have fewer (image/32), where torchvision would repeat them.

namespace {

/// Convolutions per block; each block ends with a pool that halves the image.
using VggDepths = std::array<int, 5>;
constexpr VggDepths kVgg16{2, 2, 3, 3, 3};
constexpr std::array<std::int64_t, 5> kChannels{64, 128, 256, 512, 512};

/// `x`: an image. Returns the pools that end the blocks.
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

// EAST (Zhou et al., EAST: an efficient and accurate scene text detector, 2017) on a VGG16 trunk: the last four
// pools are merged from the coarsest to the finest, then a score and a rotated box for every 4x4 pixels. The
// loss sees score, distances and angle as one tensor of six maps.

namespace {

class East {
 public:
  East(GraphBuilder& builder, bool batch_norm) : builder_(builder), batch_norm_(batch_norm) {}

  /// Convolution, batch norm where asked for, relu.
  std::string step(const std::string& name, std::string x, std::int64_t channels, std::int64_t kernel) {
    x = builder_.conv2d(
        name + ".conv", x,
        {.out_channels = channels, .kernel = kernel, .padding = kernel / 2, .bias = !batch_norm_});
    if (batch_norm_) x = builder_.add(name + ".norm", "batch_norm2d", {x});
    return builder_.add(name + ".relu", "relu", {x});
  }

  /// Doubles the coarse features and mixes them with the fine ones.
  std::string merge(const std::string& name, const std::string& coarse, const std::string& fine,
                    std::int64_t channels) {
    std::string x = builder_.add(name + ".up", "upsample_bilinear2d", {coarse}, {{"align_corners", true}});
    x = builder_.add(name + ".concat", "concat", {x, fine});
    x = step(name + ".1", x, channels, 1);
    return step(name + ".2", x, channels, 3);
  }

  /// `channels` maps with values from 0 to 1.
  std::string shares(const std::string& name, const std::string& x, std::int64_t channels) {
    const std::string y = builder_.conv2d(name + ".conv", x, {.out_channels = channels, .bias = true});
    return builder_.add(name, "sigmoid", {y});
  }

  /// `channels` maps with values from `low` to `high`.
  std::string values(const std::string& name, const std::string& x, std::int64_t channels, double low,
                     double high) {
    return builder_.add(name, "scale", {shares(name + ".sigmoid", x, channels)},
                        {{"factor", high - low}, {"offset", low}});
  }

 private:
  GraphBuilder& builder_;
  bool batch_norm_;
};

}  // namespace

ModelGraph build_east(GraphBuilder builder, const Arguments& arguments) {
  require_multiple(arguments, "image", 32);
  const std::int64_t image = arguments.whole("image");
  const bool batch_norm = arguments.whole("batch_norm") == 1;
  East east(builder, batch_norm);
  const std::string input = builder.input("image", {{3, image, image}});
  const std::vector<std::string> pools = add_vgg_features(builder, input, kVgg16, batch_norm);
  std::string x = pools[4];
  constexpr std::array<std::int64_t, 3> channels{128, 64, 32};
  for (std::size_t i = 0; i < channels.size(); ++i)
    x = east.merge("merge" + std::to_string(i + 1), x, pools[3 - i], channels[i]);
  x = east.step("merge4", x, 32, 3);
  const std::string score = east.shares("score", x, 1);
  const std::string distances = east.values("distances", x, 4, 0, static_cast<double>(image));
  const std::string angle = east.values("angle", x, 1, -std::numbers::pi / 2, std::numbers::pi / 2);
  const std::string geometry = builder.add("geometry", "concat", {distances, angle});
  const std::string maps = builder.add("maps", "concat", {score, geometry});
  return std::move(builder).train({score, geometry}, "text_detection", maps,
                                  {"text", {{6, image / 4, image / 4}}});
}

}  // namespace pp::model
