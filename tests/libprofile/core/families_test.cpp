#include "libprofile/model/families/families.h"

#include <nlohmann/json.hpp>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace families_test {

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

  TEST_CASE("image networks end with the features that their papers show") {
    CHECK((output_shape("alexnet", "features.12") == Shape{256, 6, 6}));
    CHECK((output_shape("alexnet:original=1", "features.0") == Shape{96, 55, 55}));
    // SqueezeNet's pools keep what hangs over the edge: 109 -> 54 -> 27 -> 13.
    CHECK((output_shape("squeezenet1_0", "features.2") == Shape{96, 54, 54}));
    CHECK((output_shape("squeezenet1_0", "features.12") == Shape{512, 13, 13}));
    CHECK((output_shape("mobilenet_v2", "features.18.2") == Shape{1280, 7, 7}));
    CHECK((output_shape("densenet121", "relu") == Shape{1024, 7, 7}));
    CHECK((output_shape("inception_v3", "Mixed_5d") == Shape{288, 35, 35}));
    CHECK((output_shape("inception_v3", "Mixed_6e") == Shape{768, 17, 17}));
    CHECK((output_shape("inception_v3", "Mixed_7c") == Shape{2048, 8, 8}));
    // 208/4 channels, doubled four times, four states joined.
    CHECK((output_shape("amoebanet_d", "cell5_normal6") == Shape{4 * 832, 7, 7}));
  }

  TEST_CASE("depthwise convolutions have a group per channel") {
    const ModelGraph graph = build_family("mobilenet_v2");
    const Attributes& attributes = find_layer(graph, "features.2.conv.1.0").attributes;
    CHECK((attributes.at("groups") == Attribute(std::int64_t{96})));  // 16 channels, expanded six times
    CHECK(attributes.at("out_channels") == attributes.at("groups"));
  }

  TEST_CASE("unet's long skips are edges from each level down to its partner up") {
    const ModelGraph graph = build_family("unet:B=2,C=4");
    CHECK((find_layer(graph, "decoder.0.concat").inputs ==
           std::vector<std::string>{"decoder.0.up", "encoder.0.1.relu"}));
    CHECK((find_layer(graph, "decoder.4.concat").inputs ==
           std::vector<std::string>{"decoder.4.up", "encoder.4.1.relu"}));
    CHECK((output_shape("unet:B=2,C=4", "bottleneck.1.relu") == Shape{64, 6, 6}));
    CHECK((output_shape("unet:B=2,C=4", "segment") == Shape{1, 192, 192}));
  }

  TEST_CASE("east has two outputs, which its loss reads joined") {
    const ModelGraph graph = build_family("east");
    CHECK((graph.outputs == std::vector<std::string>{"score", "geometry"}));
    CHECK((graph.loss->inputs == std::vector<std::string>{"maps", "text"}));
    CHECK((find_layer(graph, "maps").inputs == graph.outputs));
    CHECK((output_shape("east", "score") == Shape{1, 128, 128}));
    CHECK((output_shape("east", "geometry") == Shape{5, 128, 128}));
  }

  TEST_CASE("t5 has two inputs, and one embedding for both and the head") {
    const ModelGraph graph = build_family("t5_small:layers=1,source=9,target=7");
    CHECK((graph.inputs ==
           std::vector<DataTensor>{{"source", {{9}, DType::int64}}, {"target", {{7}, DType::int64}}}));
    CHECK((find_layer(graph, "decoder.block0.cross").inputs ==
           std::vector<std::string>{"decoder.block0.cross.norm", "encoder.last_dropout"}));
    CHECK((find_layer(graph, "encoder.block0.self").inputs ==
           std::vector<std::string>{"encoder.block0.self.norm", "encoder.relative_bias"}));
    CHECK(find_layer(graph, "decoder.embedding").weights_of == "encoder.embedding");
    CHECK(find_layer(graph, "head").weights_of == "encoder.embedding");
    for (const Layer& layer : build_family("t5_small:layers=1,tied=0").layers) CHECK(layer.weights_of.empty());
  }

  TEST_CASE("gnmt's decoder layers all read the attention of the first") {
    const ModelGraph graph = build_family("gnmt:layers=3");
    CHECK((find_layer(graph, "decoder.attention").inputs ==
           std::vector<std::string>{"decoder.lstm0", "encoder.lstm2.add"}));
    CHECK((find_layer(graph, "decoder.lstm1.concat").inputs ==
           std::vector<std::string>{"decoder.lstm0", "decoder.attention"}));
    CHECK((find_layer(graph, "decoder.lstm2.add").inputs ==
           std::vector<std::string>{"decoder.lstm2", "decoder.lstm1"}));
    CHECK((output_shape("gnmt:layers=3", "encoder.lstm0") == Shape{50, 2048}));
  }

  TEST_CASE("s2vt reads the frames first, then the words") {
    CHECK((output_shape("s2vt:frames=6,words=4", "lstm1") == Shape{10, 1000}));
    CHECK((output_shape("s2vt:frames=6,words=4", "concat") == Shape{10, 1500}));
    CHECK((output_shape("s2vt:frames=6,words=4", "caption") == Shape{4, 1000}));
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
    CHECK(refused("lenet") ==
          "[usage] unknown model family \"lenet\"; did you mean lenet5? Use one of " + names);
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
    CHECK(refused("resnext50:width=24") == "[usage] resnext50: width=24 must be a multiple of 16");
    CHECK(refused("unet:image=40") == "[usage] unet: image=40 must be a multiple of 32");
    CHECK(refused("amoebanet_d:L=4") == "[usage] amoebanet_d: L=4 must be a multiple of 3");
    CHECK(refused("transformer:heads=3") == "[usage] transformer: heads=3 must divide width=128");
  }
}

}  // namespace families_test
