// U-Net (Ronneberger et al., U-Net: convolutional networks for biomedical image segmentation, 2015) as the
// pipeline papers measure it (Kim et al., torchgpipe: on-the-fly pipeline parallelism for training giant
// models, 2020): B convolutions per level and C channels in the first of five levels, dropout of channels,
// instance norm, nearest upsampling. The long skips from each level down to its partner up are edges to concat.
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

constexpr int kDepth = 5;  // levels; each halves the image

/// `count` times 3x3 convolution, dropout2d, norm, leaky relu; the last one to `out` channels, the others to
/// `inner`.
std::string add_convolutions(GraphBuilder& builder, const std::string& name, std::string x, std::int64_t count,
                             std::int64_t inner, std::int64_t out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string step = name + "." + std::to_string(i);
    x = builder.conv2d(step + ".conv", x,
                       {.out_channels = i + 1 == count ? out : inner, .kernel = 3, .padding = 1});
    x = builder.add(step + ".dropout", "dropout2d", {x}, {{"p", 0.1}});
    x = builder.add(step + ".norm", "instance_norm2d", {x});
    x = builder.add(step + ".relu", "leaky_relu", {x});
  }
  return x;
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
    x = add_convolutions(builder, name, x, count, channels << level, channels << level);
    skips.push_back(x);
    x = builder.pool2d(name + ".down", "max_pool2d", x, 2, 2, 0);
  }
  x = add_convolutions(builder, "bottleneck", x, count, channels << kDepth, channels << (kDepth - 1));
  for (int level = kDepth; level-- > 0;) {
    const std::string name = "decoder." + std::to_string(level);
    const std::int64_t out = (channels << level) / 2;
    x = builder.add(name + ".up", "upsample_nearest2d", {x});
    x = builder.add(name + ".concat", "concat", {x, skips[static_cast<std::size_t>(level)]});
    x = add_convolutions(builder, name, x, count, out, out);
  }
  x = builder.conv2d("segment", x, {.out_channels = 1});
  return std::move(builder).train({x}, "binary_cross_entropy", x, {"mask", {{1, image, image}}});
}

}  // namespace pp::model
