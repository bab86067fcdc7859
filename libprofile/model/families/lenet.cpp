// LeNet-5 (LeCun et al., Gradient-based learning applied to document recognition, 1998) as it is taught today:
// relu and maximum pooling in place of scaled tanh and trained subsampling, every map of the second convolution
// sees all six of the first. 61,706 parameters at 28x28.
#include "libprofile/model/families/builder.h"

namespace pp::model {

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

}  // namespace pp::model
