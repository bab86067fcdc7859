// SqueezeNet (Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016) in
// versions 1.0 and 1.1, with torchvision's layer names.
#include <span>
#include <vector>

#include "libprofile/model/families/builder.h"

namespace pp::model {
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

}  // namespace pp::model
