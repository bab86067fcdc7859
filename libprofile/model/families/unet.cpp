// U-Net (Ronneberger et al., U-Net: convolutional networks for biomedical image segmentation, 2015) as the
// pipeline papers measure it (Kim et al., torchgpipe: on-the-fly pipeline parallelism for training giant
// models, 2020): B convolutions per level and C channels in the first of five levels, dropout of channels,
// instance norm, nearest upsampling. The long skips from each level down to its partner up are edges to concat.
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

constexpr int kDepth = 5;  // levels; each halves the image

/// 3x3 convolution, dropout of channels, norm, leaky relu.
std::string add_step(GraphBuilder& builder, const std::string& name, std::string x, std::int64_t channels) {
  x = builder.conv2d(name + ".conv", x, {.out_channels = channels, .kernel = 3, .padding = 1});
  x = builder.add(name + ".dropout", "dropout2d", {x}, {{"p", 0.1}});
  x = builder.add(name + ".norm", "instance_norm2d", {x});
  return builder.add(name + ".relu", "leaky_relu", {x});
}

/// `count` steps; the last one to `out` channels, the others to `inner`.
std::string add_steps(GraphBuilder& builder, const std::string& name, std::string x, std::int64_t count,
                      std::int64_t inner, std::int64_t out) {
  const auto step = [&](std::int64_t i) { return name + "." + std::to_string(i); };
  for (std::int64_t i = 0; i + 1 < count; ++i) x = add_step(builder, step(i), x, inner);
  return add_step(builder, step(count - 1), x, out);
}

/// Doubles `x` and joins it with the skip.
std::string join_skip(GraphBuilder& builder, const std::string& name, const std::string& x,
                      const std::string& skip) {
  return builder.add(name + ".concat", "concat", {builder.add(name + ".up", "upsample_nearest2d", {x}), skip});
}

}  // namespace

ModelGraph build_unet(GraphBuilder builder, const Arguments& arguments) {
  require_multiple(arguments, "image", 1 << kDepth);
  require_multiple(arguments, "C", 2);
  const std::int64_t image = arguments.whole("image");
  const std::int64_t count = arguments.whole("B"), channels = arguments.whole("C");
  std::vector<std::string> skips;
  std::string x = builder.input("image", {{3, image, image}});
  for (int level = 0; level < kDepth; ++level) {
    const std::string name = "encoder." + std::to_string(level);
    skips.push_back(add_steps(builder, name, x, count, channels << level, channels << level));
    x = builder.pool2d(name + ".down", "max_pool2d", skips.back(), 2, 2, 0);
  }
  x = add_steps(builder, "bottleneck", x, count, channels << kDepth, channels << (kDepth - 1));
  for (int level = kDepth; level-- > 0; skips.pop_back()) {
    const std::string name = "decoder." + std::to_string(level);
    const std::int64_t out = (channels << level) / 2;
    x = add_steps(builder, name, join_skip(builder, name, x, skips.back()), count, out, out);
  }
  x = builder.conv2d("segment", x, {.out_channels = 1});
  return std::move(builder).train({x}, "binary_cross_entropy", x, {"mask", {{1, image, image}}});
}

}  // namespace pp::model
