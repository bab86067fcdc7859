// Parameter counts of the built-in families against published ones.
#include <string_view>

#include "libprofile/model/families/families.h"
#include "tests/support/doctest.h"

using namespace pp;

namespace {

struct Published {
  std::string_view spec;
  std::int64_t parameters;
};

std::int64_t parameters(std::string_view spec) { return parameter_count(resolve(model::build_family(spec))); }

void check_all(std::initializer_list<Published> table) {
  for (const Published& row : table) {
    CAPTURE(row.spec);
    CHECK(parameters(row.spec) == row.parameters);
  }
}

}  // namespace

TEST_SUITE("libprofile/model/family_parameters") {
  TEST_CASE("image classifiers have the parameters of torchvision's") {
    // "num_params" of the ImageNet weights in the documentation of torchvision.models.
    check_all({
        {"alexnet", 61'100'840},
        {"vgg11", 132'863'336},
        {"vgg13", 133'047'848},
        {"vgg16", 138'357'544},
        {"vgg19", 143'667'240},
        {"vgg11:batch_norm=1", 132'868'840},
        {"vgg13:batch_norm=1", 133'053'736},
        {"vgg16:batch_norm=1", 138'365'992},
        {"vgg19:batch_norm=1", 143'678'248},
        {"resnet18", 11'689'512},
        {"resnet34", 21'797'672},
        {"resnet50", 25'557'032},
        {"resnet101", 44'549'160},
        {"resnet152", 60'192'808},
        {"resnext50", 25'028'904},   // 32x4d
        {"resnext101", 88'791'336},  // 32x8d
        {"wide_resnet50", 68'883'240},
        {"wide_resnet101", 126'886'696},
        {"squeezenet1_0", 1'248'424},
        {"squeezenet1_1", 1'235'496},
        {"mobilenet_v2", 3'504'872},
        {"densenet121", 7'978'856},
    });
  }

  TEST_CASE("inception_v3 has torchvision's parameters but for the auxiliary classifier's") {
    // AuxLogits: 1x1 from 768 to 128 and 5x5 to 768 with batch norm, a linear layer to 1000 classes.
    const std::int64_t auxiliary = (768 * 128 + 2 * 128) + (128 * 768 * 25 + 2 * 768) + (768 * 1000 + 1000);
    CHECK(parameters("inception_v3") == 27'161'264 - auxiliary);
  }

  TEST_CASE("the original alexnet has the parameters of Caffe's bvlc_alexnet") {
    // Krizhevsky et al. 2012 say 60 million. Convolutions 34,944 + 307,456 + 885,120 + 663,936 + 442,624,
    // linear layers 37,752,832 + 16,781,312 + 4,097,000.
    CHECK(parameters("alexnet:original=1") == 60'965'224);
  }

  TEST_CASE("small networks") {
    // LeNet-5 with a fully connected second convolution: 156 + 2416 + 48120 + 10164 + 850.
    check_all({{"lenet5", 61'706}});
  }

  TEST_CASE("language models") {
    // GPT-2 small (Radford et al. 2019; 124M): 50257*768 + 1024*768 + 12 * 7,087,872 + 2*768.
    check_all(
        {{"transformer:layers=12,width=768,heads=12,vocabulary=50257,sequence=1024,tied=1", 124'439'808}});
  }
}
