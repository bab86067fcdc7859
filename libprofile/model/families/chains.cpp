// Networks without branches: LeNet-5, AlexNet, perceptrons.
#include <algorithm>
#include <array>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// LeNet-5 (LeCun et al., Gradient-based learning applied to document recognition, 1998) as it is taught today:
// relu and maximum pooling in place of scaled tanh and trained subsampling, every map of the second convolution
// sees all six of the first. 61,706 parameters at 28x28.

ModelGraph build_lenet5(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t image = arguments.whole("image");
  // The second convolution sees half the image. Below 8x8 its 5x5 kernel has no room without padding.
  const std::int64_t padding = image < 16 ? 2 : 0;
  std::string x = builder.input("image", {{1, image, image}});
  x = builder.conv2d("conv1", x, {.out_channels = 6, .kernel = 5, .padding = 2, .bias = true});
  x = builder.add("relu1", "relu", {x});
  x = builder.pool2d("pool1", "max_pool2d", x, 2, 2, 0);
  x = builder.conv2d("conv2", x, {.out_channels = 16, .kernel = 5, .padding = padding, .bias = true});
  x = builder.add("relu2", "relu", {x});
  x = builder.pool2d("pool2", "max_pool2d", x, 2, 2, 0);
  x = builder.add("flatten", "flatten", {x});
  x = builder.linear("fc1", x, 120);
  x = builder.add("relu3", "relu", {x});
  x = builder.linear("fc2", x, 84);
  x = builder.add("relu4", "relu", {x});
  x = builder.linear("fc3", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

// AlexNet, with torchvision's layer names. By default the single column of Krizhevsky, One weird trick for
// parallelizing convolutional neural networks, 2014; with original=1 the network of Krizhevsky et al., ImageNet
// classification with deep convolutional neural networks, 2012: two groups (they were two GPUs) and local
// response normalisation. The classifier starts from at most 6x6 features; smaller images have fewer.

namespace {

struct Step {
  Convolution convolution;
  bool normalise;
  bool pool;
};
using Steps = std::array<Step, 5>;

Steps column_of_2014() {
  const auto step = [](std::int64_t channels, std::int64_t kernel, bool pool) {
    return Step{{.out_channels = channels, .kernel = kernel, .padding = kernel / 2, .bias = true}, false, pool};
  };
  Steps steps{step(64, 11, true), step(192, 5, true), step(384, 3, false), step(256, 3, false),
              step(256, 3, true)};
  steps[0].convolution.stride = 4;
  steps[0].convolution.padding = 2;
  return steps;
}

Steps groups_of_2012() {
  Steps steps = column_of_2014();
  constexpr std::array<std::int64_t, 5> channels{96, 256, 384, 384, 256}, groups{1, 2, 1, 2, 2};
  for (std::size_t i = 0; i < steps.size(); ++i) {
    steps[i].convolution.out_channels = channels[i];
    steps[i].convolution.groups = groups[i];
    steps[i].normalise = i < 2;
  }
  return steps;
}

/// Side of the last pool's output: 11x11 with stride 4 and padding 2, then three pools 3x3 with stride 2.
std::int64_t feature_side(std::int64_t image) {
  std::int64_t side = (image + 4 - 11) / 4 + 1;
  for (int pool = 0; pool < 3; ++pool) side = (side - 3) / 2 + 1;
  return side;
}

}  // namespace

ModelGraph build_alexnet(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t image = arguments.whole("image");
  const std::int64_t width = arguments.whole("width");
  const double dropout = arguments.number("dropout");
  int position = 0;  // within torchvision's Sequential
  const auto name = [&] { return "features." + std::to_string(position++); };
  std::string x = builder.input("image", {{3, image, image}});
  for (const Step& step : arguments.whole("original") == 1 ? groups_of_2012() : column_of_2014()) {
    x = builder.conv2d(name(), x, step.convolution);
    x = builder.add(name(), "relu", {x});
    if (step.normalise) {
      // The paper's alpha 1e-4 multiplies the sum over 5 channels, ours their mean.
      x = builder.add(name(), "local_response_norm", {x},
                      {{"size", std::int64_t{5}}, {"alpha", 5e-4}, {"k", 2.0}});
    }
    if (step.pool) x = builder.pool2d(name(), "max_pool2d", x, 3, 2, 0);
  }
  x = builder.add("avgpool", "adaptive_avg_pool2d", {x},
                  {{"output_size", std::min<std::int64_t>(6, feature_side(image))}});
  x = builder.add("flatten", "flatten", {x});
  x = builder.dropout("classifier.0", x, dropout);
  x = builder.linear("classifier.1", x, width);
  x = builder.add("classifier.2", "relu", {x});
  x = builder.dropout("classifier.3", x, dropout);
  x = builder.linear("classifier.4", x, width);
  x = builder.add("classifier.5", "relu", {x});
  x = builder.linear("classifier.6", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

ModelGraph build_mlp(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t layers = arguments.whole("layers");
  std::string x = builder.input("features", {{arguments.whole("inputs")}});
  const auto name = [](std::string kind, std::int64_t i) { return kind.append(std::to_string(i)); };
  for (std::int64_t i = 1; i < layers; ++i) {
    x = builder.linear(name("fc", i), x, arguments.whole("width"));
    x = builder.add(name("relu", i), "relu", {x});
    x = builder.dropout(name("dropout", i), x, arguments.number("dropout"));
  }
  x = builder.linear(name("fc", layers), x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

}  // namespace pp::model
