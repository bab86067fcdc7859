// EAST (Zhou et al., EAST: an efficient and accurate scene text detector, 2017) on a VGG16 trunk: the last four
// pools are merged from the coarsest to the finest, then a score and a rotated box for every 4x4 pixels. The
// loss sees score, distances and angle as one tensor of six maps.
#include <array>
#include <numbers>

#include "libprofile/model/families/vgg.h"

namespace pp::model {
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
