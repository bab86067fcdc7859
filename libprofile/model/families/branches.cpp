// Image networks whose branches are joined by concatenation.
#include <span>
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// SqueezeNet (Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016) in
// versions 1.0 and 1.1, with torchvision's layer names.

namespace {

/// A fire module squeezes to so many channels and expands to four times as many twice, side by side; 0 stands
/// for a pool.
using Squeezes = std::vector<std::int64_t>;
constexpr std::int64_t kPool = 0;

std::string add_fire(GraphBuilder& builder, const std::string& name, std::string x, std::int64_t squeeze) {
  const auto step = [&](const std::string& part, const std::string& input, std::int64_t channels,
                        std::int64_t kernel) {
    const std::string y =
        builder.conv2d(name + "." + part, input,
                       {.out_channels = channels, .kernel = kernel, .padding = kernel / 2, .bias = true});
    return builder.add(name + "." + part + "_activation", "relu", {y});
  };
  x = step("squeeze", x, squeeze, 1);
  const std::string narrow = step("expand1x1", x, 4 * squeeze, 1);
  const std::string wide = step("expand3x3", x, 4 * squeeze, 3);
  return builder.add(name, "concat", {narrow, wide});
}

ModelGraph build_squeezenet(GraphBuilder builder, const Arguments& arguments, const Convolution& first,
                            std::span<const std::int64_t> squeezes) {
  const std::int64_t image = arguments.whole("image");
  int position = 0;  // within torchvision's Sequential
  const auto name = [&] { return "features." + std::to_string(position++); };
  std::string x = builder.input("image", {{3, image, image}});
  x = builder.conv2d(name(), x, first);
  x = builder.add(name(), "relu", {x});
  for (const std::int64_t squeeze : squeezes) {
    if (squeeze == kPool) {
      x = builder.pool2d(name(), "max_pool2d", x, 3, 2, 0);
      builder.last().attributes.emplace("ceil_mode", true);
    } else {
      x = add_fire(builder, name(), x, squeeze);
    }
  }
  x = builder.dropout("classifier.0", x, arguments.number("dropout"));
  x = builder.conv2d("classifier.1", x, {.out_channels = arguments.whole("classes"), .bias = true});
  x = builder.add("classifier.2", "relu", {x});
  x = builder.global_pool("classifier.3", x);
  x = builder.add("flatten", "flatten", {x});
  return std::move(builder).classify(x, {});
}

}  // namespace

ModelGraph build_squeezenet1_0(GraphBuilder builder, const Arguments& arguments) {
  return build_squeezenet(std::move(builder), arguments,
                          {.out_channels = 96, .kernel = 7, .stride = 2, .bias = true},
                          Squeezes{kPool, 16, 16, 32, kPool, 32, 48, 48, 64, kPool, 64});
}
ModelGraph build_squeezenet1_1(GraphBuilder builder, const Arguments& arguments) {
  return build_squeezenet(std::move(builder), arguments,
                          {.out_channels = 64, .kernel = 3, .stride = 2, .bias = true},
                          Squeezes{kPool, 16, 16, kPool, 32, 32, kPool, 48, 48, 64, 64});
}

// Inception v3 (Szegedy et al., Rethinking the inception architecture for computer vision, 2016) with
// torchvision's layer names, without the auxiliary classifier: a model here has one loss.

namespace {

class Inception {
 public:
  explicit Inception(GraphBuilder& builder) : builder_(builder) {}

  /// Convolution without bias, batch norm, relu.
  std::string step(const std::string& name, const std::string& x, const Convolution& convolution) {
    std::string y = builder_.conv2d(name + ".conv", x, convolution);
    y = builder_.add(name + ".bn", "batch_norm2d", {y}, {{"eps", 1e-3}});
    return builder_.add(name + ".relu", "relu", {y});
  }

  /// 1x1, 5x5 and two 3x3 at one resolution, and a pool.
  std::string block_a(const std::string& name, const std::string& x, std::int64_t pooled) {
    const std::string one = step(name + ".branch1x1", x, {.out_channels = 64});
    std::string five = step(name + ".branch5x5_1", x, {.out_channels = 48});
    five = step(name + ".branch5x5_2", five, {.out_channels = 64, .kernel = 5, .padding = 2});
    const std::string three = double_three(name, x, 1);
    return join(name, {one, five, three, pool_branch(name, x, pooled)});
  }

  /// Halves the image.
  std::string block_b(const std::string& name, const std::string& x) {
    const std::string single = step(name + ".branch3x3", x, {.out_channels = 384, .kernel = 3, .stride = 2});
    return join(name, {single, double_three(name, x, 2), max_pool(name + ".pool", x)});
  }

  /// Kernels of 7 in one direction; `inner`: channels between them.
  std::string block_c(const std::string& name, const std::string& x, std::int64_t inner) {
    const std::string one = step(name + ".branch1x1", x, {.out_channels = 192});
    std::string seven = step(name + ".branch7x7_1", x, {.out_channels = inner});
    seven = step(name + ".branch7x7_2", seven, row(inner, 7));
    seven = step(name + ".branch7x7_3", seven, column(192, 7));
    std::string twice = step(name + ".branch7x7dbl_1", x, {.out_channels = inner});
    twice = step(name + ".branch7x7dbl_2", twice, column(inner, 7));
    twice = step(name + ".branch7x7dbl_3", twice, row(inner, 7));
    twice = step(name + ".branch7x7dbl_4", twice, column(inner, 7));
    twice = step(name + ".branch7x7dbl_5", twice, row(192, 7));
    return join(name, {one, seven, twice, pool_branch(name, x, 192)});
  }

  /// Halves the image.
  std::string block_d(const std::string& name, const std::string& x) {
    std::string three = step(name + ".branch3x3_1", x, {.out_channels = 192});
    three = step(name + ".branch3x3_2", three, {.out_channels = 320, .kernel = 3, .stride = 2});
    std::string seven = step(name + ".branch7x7x3_1", x, {.out_channels = 192});
    seven = step(name + ".branch7x7x3_2", seven, row(192, 7));
    seven = step(name + ".branch7x7x3_3", seven, column(192, 7));
    seven = step(name + ".branch7x7x3_4", seven, {.out_channels = 192, .kernel = 3, .stride = 2});
    return join(name, {three, seven, max_pool(name + ".pool", x)});
  }

  /// Kernels of 3 in both directions side by side.
  std::string block_e(const std::string& name, const std::string& x) {
    const std::string one = step(name + ".branch1x1", x, {.out_channels = 320});
    const std::string three = step(name + ".branch3x3_1", x, {.out_channels = 384});
    const std::string crossed = cross(name + ".branch3x3_2", three);
    std::string twice = step(name + ".branch3x3dbl_1", x, {.out_channels = 448});
    twice = step(name + ".branch3x3dbl_2", twice, {.out_channels = 384, .kernel = 3, .padding = 1});
    const std::string crossed_twice = cross(name + ".branch3x3dbl_3", twice);
    return join(name, {one, crossed, crossed_twice, pool_branch(name, x, 192)});
  }

  std::string max_pool(const std::string& name, const std::string& x) {
    return builder_.pool2d(name, "max_pool2d", x, 3, 2, 0);
  }

 private:
  static Convolution row(std::int64_t channels, std::int64_t length) {
    return {.out_channels = channels, .kernel = 1, .kernel_width = length, .padding_width = length / 2};
  }
  static Convolution column(std::int64_t channels, std::int64_t length) {
    return {.out_channels = channels, .kernel = length, .padding = length / 2, .kernel_width = 1};
  }

  /// 1x1 and two 3x3, the last with `stride`; stride 2 without padding.
  std::string double_three(const std::string& name, const std::string& x, std::int64_t stride) {
    std::string y = step(name + ".branch3x3dbl_1", x, {.out_channels = 64});
    y = step(name + ".branch3x3dbl_2", y, {.out_channels = 96, .kernel = 3, .padding = 1});
    return step(name + ".branch3x3dbl_3", y,
                {.out_channels = 96, .kernel = 3, .stride = stride, .padding = stride == 1 ? 1 : 0});
  }

  std::string cross(const std::string& name, const std::string& x) {
    const std::string a = step(name + "a", x, row(384, 3));
    const std::string b = step(name + "b", x, column(384, 3));
    return join(name, {a, b});
  }

  std::string pool_branch(const std::string& name, const std::string& x, std::int64_t channels) {
    return step(name + ".branch_pool", builder_.pool2d(name + ".pool", "avg_pool2d", x, 3, 1, 1),
                {.out_channels = channels});
  }

  std::string join(const std::string& name, std::vector<std::string> branches) {
    return builder_.add(name, "concat", std::move(branches));
  }

  GraphBuilder& builder_;
};

}  // namespace

ModelGraph build_inception_v3(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t image = arguments.whole("image");
  Inception net(builder);
  std::string x = builder.input("image", {{3, image, image}});
  x = net.step("Conv2d_1a_3x3", x, {.out_channels = 32, .kernel = 3, .stride = 2});
  x = net.step("Conv2d_2a_3x3", x, {.out_channels = 32, .kernel = 3});
  x = net.step("Conv2d_2b_3x3", x, {.out_channels = 64, .kernel = 3, .padding = 1});
  x = net.max_pool("maxpool1", x);
  x = net.step("Conv2d_3b_1x1", x, {.out_channels = 80});
  x = net.step("Conv2d_4a_3x3", x, {.out_channels = 192, .kernel = 3});
  x = net.max_pool("maxpool2", x);
  x = net.block_a("Mixed_5b", x, 32);
  x = net.block_a("Mixed_5c", x, 64);
  x = net.block_a("Mixed_5d", x, 64);
  x = net.block_b("Mixed_6a", x);
  x = net.block_c("Mixed_6b", x, 128);
  x = net.block_c("Mixed_6c", x, 160);
  x = net.block_c("Mixed_6d", x, 160);
  x = net.block_c("Mixed_6e", x, 192);
  x = net.block_d("Mixed_7a", x);
  x = net.block_e("Mixed_7b", x);
  x = net.block_e("Mixed_7c", x);
  x = builder.global_pool("avgpool", x);
  x = builder.dropout("dropout", x, arguments.number("dropout"));
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("fc", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

// U-Net (Ronneberger et al., U-Net: convolutional networks for biomedical image segmentation, 2015) as the
// pipeline papers measure it (Kim et al., torchgpipe: on-the-fly pipeline parallelism for training giant
// models, 2020): B convolutions per level and C channels in the first of five levels, dropout of channels,
// instance norm, nearest upsampling. The long skips from each level down to its partner up are edges to concat.

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
