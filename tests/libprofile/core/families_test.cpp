#include "libprofile/model/families/families.h"

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

using namespace pp;
using pp::model::build_family;

namespace {

std::int64_t parameters(std::string_view spec) { return parameter_count(resolve(build_family(spec))); }
std::string refused(std::string_view spec) {
  return test::error_text([&] { return build_family(spec); });
}
const Layer& find_layer(const ModelGraph& graph, std::string_view name) {
  for (const Layer& layer : graph.layers) {
    if (layer.name == name) return layer;
  }
  FAIL("no layer " << name);
  return graph.layers.front();
}
Shape output_shape(std::string_view spec, std::string_view layer) {
  const ResolvedModel model = resolve(build_family(spec));
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (model.graph.layers[i].name == layer) return model.layers[i].outputs[0].shape;
  }
  return {};
}

}  // namespace

TEST_SUITE("libprofile/model/families") {
  TEST_CASE("counts with arguments follow from the structure") {
    // 4*8+8, 8*8+8, 8*3+3
    CHECK(parameters("mlp:inputs=4,width=8,layers=3,classes=3") == 40 + 72 + 27);
    CHECK(parameters("mlp:inputs=4,layers=1,classes=2") == 10);
    // The last layer alone depends on the classes: 512*1000 + 1000 becomes 512*10 + 10.
    CHECK(parameters("resnet18:classes=10") == 11'689'512 - 990 * 513);
    // A head of its own adds vocabulary * width.
    CHECK(parameters("transformer:tied=0") - parameters("transformer:tied=1") == 256 * 128);
  }

  TEST_CASE("every family at its defaults resolves, has a loss and is named like the family") {
    for (const model::FamilyRow& row : model::family_table()) {
      CAPTURE(row.name);
      const ModelGraph graph = build_family(row.name);
      CHECK(graph.name == row.name);
      CHECK(graph.loss.has_value());
      CHECK((parse_model(dump_json(to_json(graph))) == graph));
    }
  }

  TEST_CASE("the name holds the arguments that differ from their defaults, in one order") {
    CHECK(build_family("vgg16:image=32,classes=10").name == "vgg16:classes=10,image=32");
    CHECK(build_family("vgg16:image=224").name == "vgg16");
    CHECK(build_family("transformer:dropout=0.25").name == "transformer:dropout=0.25");
    CHECK(model_hash(build_family("vgg16:image=32,classes=10")) ==
          model_hash(build_family("vgg16:classes=10,image=32")));
  }

  TEST_CASE("lenet5 works on 28x28 and on 8x8 images") {
    CHECK((output_shape("lenet5", "conv1") == Shape{6, 28, 28}));
    CHECK((output_shape("lenet5", "pool2") == Shape{16, 5, 5}));
    CHECK((output_shape("lenet5:image=8", "conv2") == Shape{16, 4, 4}));  // half of 8, kept by padding 2
    CHECK((output_shape("lenet5:image=8", "pool2") == Shape{16, 2, 2}));
    CHECK((output_shape("lenet5:image=8", "fc3") == Shape{10}));
  }

  TEST_CASE("vgg's classifier starts from 7x7 features, from fewer when the image has fewer") {
    CHECK((output_shape("vgg11", "flatten") == Shape{512 * 49}));
    CHECK((output_shape("vgg11:image=32", "flatten") == Shape{512}));
    CHECK((output_shape("vgg11:image=32", "features.20") == Shape{512, 1, 1}));
    CHECK((find_layer(build_family("vgg16"), "classifier.5").attributes == Attributes{{"p", 0.5}}));
  }

  TEST_CASE("resnet's shortcuts are edges to add") {
    const ModelGraph graph = build_family("resnet18");
    CHECK((find_layer(graph, "layer1.0.add").inputs == std::vector<std::string>{"layer1.0.bn2", "maxpool"}));
    CHECK((find_layer(graph, "layer2.0.add").inputs ==
           std::vector<std::string>{"layer2.0.bn2", "layer2.0.downsample.1"}));
    CHECK((output_shape("resnet50", "layer4.2.relu3") == Shape{2048, 7, 7}));
    CHECK((output_shape("resnet18:image=32", "layer4.1.relu2") == Shape{512, 1, 1}));
  }

  TEST_CASE("the transformer predicts a token per position from the ones before it") {
    const ModelGraph graph = build_family("transformer:layers=1,width=8,heads=2,vocabulary=16,sequence=4");
    CHECK((graph.targets == std::vector<DataTensor>{{"label", {{4}, DType::int64}}}));
    CHECK((find_layer(graph, "block0.attention").attributes.at("causal") == Attribute(true)));
    CHECK((find_layer(graph, "block0.fc1").attributes.at("out_features") == Attribute(std::int64_t{32})));
    CHECK((find_layer(graph, "block0.add2").inputs ==
           std::vector<std::string>{"block0.add1", "block0.dropout2"}));
    CHECK((output_shape("transformer:layers=1,width=8,heads=2,vocabulary=16,sequence=4", "head") ==
           Shape{4, 16}));
  }

  TEST_CASE("without dropout there are no dropout layers") {
    for (const Layer& layer : build_family("transformer:dropout=0").layers) CHECK(layer.op != "dropout");
    for (const Layer& layer : build_family("vgg11:dropout=0").layers) CHECK(layer.op != "dropout");
  }

  TEST_CASE("a wrong specification is refused with what is allowed") {
    std::string names;
    for (const model::FamilyRow& row : model::family_table())
      names.append(names.empty() ? "" : ", ").append(row.name);
    CHECK(refused("lenet") == "[usage] unknown model family \"lenet\"; use one of " + names);
    CHECK(refused("lenet5:clases=3") ==
          "[usage] lenet5: unknown argument \"clases\"; use one of classes=10, image=28 (the defaults)");
    CHECK(refused("vgg16:image=16") ==
          "[usage] vgg16: image=16 is out of range; use an integer from 32 to 4096");
    CHECK(refused("vgg16:image=40.5") ==
          "[usage] vgg16: image=40.5 is out of range; use an integer from 32 to 4096");
    CHECK(refused("mlp:dropout=nan") ==
          "[usage] mlp: dropout=nan is out of range; use a number from 0 to 0.99");
    CHECK(refused("mlp:width") == "[usage] mlp: \"width\" is no argument; write mlp:name=value,name=value");
    CHECK(refused("mlp:width=1,width=2") == "[usage] mlp: argument \"width\" appears twice; give it once");
    CHECK(refused("transformer:heads=3") == "[usage] transformer: heads=3 must divide width=128");
  }
}
