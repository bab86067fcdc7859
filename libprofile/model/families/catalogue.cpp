#include "libprofile/model/families/catalogue.h"

namespace pp::model {
namespace {

FamilyArgument classes_argument(double classes = 1000) {
  return {"classes", classes, 1, 1 << 20, "output classes"};
}
FamilyArgument image_argument(double side, double smallest) {
  return {"image", side, smallest, 4096, "side of the input image, 3 channels"};
}
FamilyArgument dropout_argument(double p, std::string_view where) {
  return {"dropout", p, 0, 0.99, where, false};
}

std::vector<Family> plain_families() {
  return {
      {{"mlp",
        "linear layers with relu between them",
        {{"inputs", 784, 1, 1 << 20, "input features"},
         {"width", 512, 1, 1 << 20, "features of the hidden layers"},
         {"layers", 3, 1, 10000, "linear layers"},
         classes_argument(10),
         dropout_argument(0, "after each relu")}},
       build_mlp},
      {{"lenet5",
        "two convolutions and three linear layers for small grey images",
        {classes_argument(10), {"image", 28, 4, 4096, "side of the input image, 1 channel"}}},
       build_lenet5},
  };
}

Family vgg(std::string_view name, std::string_view summary, Build build) {
  return {{name,
           summary,
           {classes_argument(),
            image_argument(224, 32),
            {"batch_norm", 0, 0, 1, "1: batch norm after each convolution"},
            dropout_argument(0.5, "in the classifier"),
            {"width", 4096, 1, 1 << 16, "of the classifier's hidden layers"}}},
          build};
}

Family resnet(std::string_view name, std::string_view summary, Build build) {
  return {
      {name,
       summary,
       {classes_argument(), image_argument(224, 32), {"width", 64, 1, 4096, "channels of the first layers"}}},
      build};
}

Family squeezenet(std::string_view name, std::string_view summary, Build build) {
  return {{name,
           summary,
           {classes_argument(), image_argument(224, 32), dropout_argument(0.5, "in the classifier")}},
          build};
}

std::vector<Family> image_families() {
  return {
      {{"alexnet",
        "five convolutions and three linear layers",
        {classes_argument(),
         image_argument(224, 63),
         {"original", 0, 0, 1, "1: two groups and response norms, as in 2012; 0: one column, as in 2014"},
         dropout_argument(0.5, "in the classifier"),
         {"width", 4096, 1, 1 << 16, "of the classifier's hidden layers"}}},
       build_alexnet},
      vgg("vgg11", "VGG with 11 layers (A)", build_vgg11),
      vgg("vgg13", "VGG with 13 layers (B)", build_vgg13),
      vgg("vgg16", "VGG with 16 layers (D)", build_vgg16),
      vgg("vgg19", "VGG with 19 layers (E)", build_vgg19),
      resnet("resnet18", "residual network of 18 layers, basic blocks", build_resnet18),
      resnet("resnet34", "residual network of 34 layers, basic blocks", build_resnet34),
      resnet("resnet50", "residual network of 50 layers, bottlenecks", build_resnet50),
      resnet("resnet101", "residual network of 101 layers, bottlenecks", build_resnet101),
      resnet("resnet152", "residual network of 152 layers, bottlenecks", build_resnet152),
      resnet("resnext50", "ResNeXt-50 32x4d: bottlenecks of 32 groups", build_resnext50),
      resnet("resnext101", "ResNeXt-101 32x8d: bottlenecks of 32 groups", build_resnext101),
      resnet("wide_resnet50", "ResNet-50 with bottlenecks twice as wide", build_wide_resnet50),
      resnet("wide_resnet101", "ResNet-101 with bottlenecks twice as wide", build_wide_resnet101),
      squeezenet("squeezenet1_0", "SqueezeNet 1.0: fire modules", build_squeezenet1_0),
      squeezenet("squeezenet1_1", "SqueezeNet 1.1: pools earlier", build_squeezenet1_1),
      {{"mobilenet_v2",
        "inverted residuals with depthwise convolutions",
        {classes_argument(), image_argument(224, 32), dropout_argument(0.2, "before the classifier")}},
       build_mobilenet_v2},
      {{"densenet121",
        "every layer of a block sees all earlier ones",
        {classes_argument(), image_argument(224, 32), {"growth", 32, 1, 1024, "channels that a layer adds"}}},
       build_densenet121},
      {{"inception_v3",
        "parallel branches with kernels of several shapes, no auxiliary classifier",
        {classes_argument(), image_argument(299, 75), dropout_argument(0.5, "before the classifier")}},
       build_inception_v3},
  };
}

std::vector<Family> sequence_families() {
  return {
      {{"transformer",
        "decoder-only language model",
        {{"layers", 4, 1, 1000, "blocks of attention and perceptron"},
         {"width", 128, 1, 1 << 16, "features per position"},
         {"heads", 4, 1, 1 << 16, "attention heads, a divisor of width"},
         {"vocabulary", 256, 1, 1 << 24, "tokens"},
         {"sequence", 64, 1, 1 << 16, "positions"},
         dropout_argument(0.1, "on embeddings, attention and both branches"),
         {"tied", 0, 0, 1, "1: the head uses the token embedding's weights"}}},
       build_transformer},
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table = [] {
    std::vector<Family> all = plain_families();
    for (const std::vector<Family>& group : {image_families(), sequence_families()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return table;
}

}  // namespace pp::model
