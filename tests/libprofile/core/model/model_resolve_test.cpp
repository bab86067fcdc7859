#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/ops/op_table.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace model_resolve_test {

using namespace pp;

namespace {

Attribute whole(std::int64_t value) { return value; }
Layer layer(std::string name, std::string op, std::vector<std::string> inputs, Attributes attributes = {}) {
  return {std::move(name), std::move(op), std::move(inputs), std::move(attributes), {}};
}

/// x [4] -> a: linear 6 -> b: relu -> c: linear 3, with a label for c.
ModelGraph chain() {
  ModelGraph graph;
  graph.name = "chain";
  graph.inputs = {{"x", {{4}, DType::float32}}};
  graph.targets = {{"label", {{}, DType::int64}}};
  graph.layers = {layer("a", "linear", {"x"}, {{"out_features", whole(6)}}), layer("b", "relu", {"a"}),
                  layer("c", "linear", {"b"}, {{"out_features", whole(3)}})};
  graph.outputs = {"c"};
  graph.loss = LossSpec{"cross_entropy", {"c", "label"}, {}};
  return graph;
}

template <class Change>
std::string refused(Change change) {
  ModelGraph graph = chain();
  change(graph);
  return test::error_text([&] { return resolve(graph); });
}

/// All names of the table, and the two that it lacks.
std::string known_ops() {
  std::string names;
  for (const OpRow& row : op_table()) names.append(row.name).append(", ");
  return names + "aten, graph";
}
const std::string kOps = known_ops();

using Kind = TensorSource::Kind;

}  // namespace

TEST_SUITE("libprofile/core/model/model_resolve") {
  TEST_CASE("200,000 layers are refused before any is looked at") {
    ModelGraph graph;
    graph.name = "long";
    graph.inputs = {{"x", {{2}, DType::float32}}};
    graph.outputs = {"l199999"};
    for (int i = 0; i < 200'000; ++i) {
      const std::string name = "l" + std::to_string(i);
      graph.layers.push_back({name, "relu", {i == 0 ? "x" : "l" + std::to_string(i - 1)}, {}});
    }
    CHECK(test::error_text([&] { return resolve(graph, "/model"); }) ==
          "[data] /model/layers: has 200000 entries, at most 65536 are planned; join small layers in graphs");
    graph.layers.resize(65'536);
    graph.outputs = {"l65535"};
    CHECK(resolve(graph).layer_count() == 65'536);
  }

  TEST_CASE("sources, shapes, consumers and parameters follow from the graph") {
    ModelGraph graph = chain();
    graph.layers.push_back(layer("d", "add", {"a", "b", "a"}));
    graph.outputs = {"d", "c"};
    const ResolvedModel model = resolve(graph);
    CHECK(model.layer_count() == 4);
    CHECK((model.layers[0].sources == std::vector<TensorSource>{{Kind::input, 0, 0}}));
    CHECK((model.layers[3].sources ==
           std::vector<TensorSource>{{Kind::layer, 0, 0}, {Kind::layer, 1, 0}, {Kind::layer, 0, 0}}));
    CHECK((model.layers[0].consumers == std::vector<int>{1, 3}));  // d reads a twice, counts once
    CHECK((model.layers[1].consumers == std::vector<int>{2, 3}));
    CHECK((model.layers[2].inputs == std::vector<TensorType>{{{6}, DType::float32}}));
    CHECK((model.layers[2].outputs == std::vector<TensorType>{{{3}, DType::float32}}));
    CHECK((model.outputs == std::vector<TensorSource>{{Kind::layer, 3, 0}, {Kind::layer, 2, 0}}));
    CHECK((model.loss_sources == std::vector<TensorSource>{{Kind::layer, 2, 0}, {Kind::target, 0, 0}}));
    CHECK(parameter_count(model) == 51);                                      // 6*4+6 + 3*6+3
    CHECK(parameter_bytes(model, 0, DType::float32) == Bytes(120));           // 30 * 4
    CHECK(parameter_bytes(model, 2, DType::bfloat16) == Bytes(42));           // 21 * 2
    CHECK((model.graph.layers[0].attributes.at("bias") == Attribute(true)));  // filled in
  }

  TEST_CASE("`layer:0` is the layer's first output") {
    ModelGraph graph = chain();
    graph.layers[1].inputs = {"a:0"};
    CHECK((resolve(graph).layers[1].sources == std::vector<TensorSource>{{Kind::layer, 0, 0}}));
    CHECK(refused([](ModelGraph& g) { g.layers[1].inputs = {"a:1"}; }) ==
          "[data] /layers/1/inputs/0: \"a\" has no output \"1\"; it has one, write \"a\"");
    CHECK(refused([](ModelGraph& g) { g.layers[0].inputs = {"x:one"}; }) ==
          "[data] /layers/0/inputs/0: \"x\" has no output \"one\"; it has one, write \"x\"");
  }

  TEST_CASE("an unknown operation lists the known ones") {
    CHECK(refused([](ModelGraph& g) { g.layers[1].op = "conv3d"; }) ==
          std::string("[data] /layers/1/op: unknown operation \"conv3d\"; use one of ") + kOps);
    CHECK(refused([](ModelGraph& g) { g.loss->op = "nll"; }) ==
          "[data] /loss/op: unknown loss \"nll\"; use one of binary_cross_entropy, cross_entropy, mse, "
          "text_detection, graph");
  }

  TEST_CASE("attributes are checked where they stand") {
    CHECK(refused([](ModelGraph& g) { g.layers[2].attributes = {}; }) ==
          "[data] /layers/2/attributes/out_features: missing; linear needs it: features of the output, an "
          "integer from 1 to 1048576");
    CHECK(refused([](ModelGraph& g) {
            g.loss->attributes = {{"weight", 1.0}};
          }) ==
          "[data] /loss/attributes/weight: unknown attribute of cross_entropy; use one of ignore_index, "
          "label_smoothing");
  }

  TEST_CASE("a wrong shape names the layer and both shapes") {
    CHECK(refused([](ModelGraph& g) {
            g.layers[1] = layer("b", "conv2d", {"a"}, {{"out_channels", whole(1)}, {"kernel_size", whole(1)}});
          }) ==
          "[data] /layers/1: conv2d \"b\": input 0 is float32 [6], but needs three dimensions, [channels, "
          "height, width]");
    CHECK(refused([](ModelGraph& g) { g.targets[0].type.shape = {3}; }) ==
          "[data] /loss: cross_entropy: input 1 is int64 [3], but needs int64 labels [] for logits [3]");
    CHECK(refused([](ModelGraph& g) { g.inputs[0].type.shape = {0}; }) ==
          "[data] /inputs/0/shape/0: must be an integer from 1 upwards, not 0");
  }

  TEST_CASE("sizes that would overflow are refused") {
    CHECK(refused([](ModelGraph& g) {
            g.inputs[0].type.shape = {1 << 20, 1 << 20, 2};
          }) == "[data] /inputs/0/shape: has more than 2^40 elements; use smaller sizes");
    CHECK(refused([](ModelGraph& g) {
            g.inputs[0].type.shape = {1 << 20, 1 << 20};
            g.layers[0].attributes = {{"out_features", whole((1 << 20) - 1)}};
            g.layers[1] = layer("b", "concat", {"a", "x"}, {{"dim", whole(1)}});
          }) ==
          "[data] /layers/1: concat \"b\": output [1048576, 2097151] has more than 2^40 elements; use smaller "
          "sizes");
    CHECK(refused([](ModelGraph& g) {
            g.inputs[0].type.shape = {std::int64_t{1} << 21};
            g.layers[0].attributes = {{"out_features", whole(1 << 20)}};
          }) ==
          "[data] /layers/0: linear \"a\": weight [1048576, 2097152] has more than 2^40 elements; use smaller "
          "sizes");
  }

  TEST_CASE("an unknown input is refused with what could be meant") {
    CHECK(refused([](ModelGraph& g) { g.layers[1].inputs = {"aa"}; }) ==
          "[data] /layers/1/inputs/0: unknown name \"aa\"; use an earlier layer or an input, such as \"x\"");
    CHECK(refused([](ModelGraph& g) { g.outputs = {"x"}; }) ==
          "[data] /outputs/0: \"x\" is no layer; name the output of a layer");
    CHECK(refused([](ModelGraph& g) {
            g.loss->inputs = {"x", "label"};
          }) == "[data] /loss/inputs/0: \"x\" is no layer; name the output of a layer");
  }

  TEST_CASE("a reference to a later layer is a matter of order when there is no cycle") {
    CHECK(refused([](ModelGraph& g) { std::swap(g.layers[0], g.layers[1]); }) ==
          "[data] /layers/0/inputs/0: \"a\" stands later in the file, at /layers/1; move it before \"b\"");
  }

  TEST_CASE("a cycle is spelled out") {
    CHECK(refused([](ModelGraph& g) {
            g.layers[0] = layer("a", "add", {"x", "c"});
          }) ==
          "[data] /layers/0/inputs/1: cycle: \"a\" reads \"c\" reads \"b\" reads \"a\"; a model has no cycles, "
          "remove one of these "
          "inputs");
    CHECK(refused([](ModelGraph& g) { g.layers[1].inputs = {"b"}; }) ==
          "[data] /layers/1/inputs/0: cycle: \"b\" reads \"b\"; a model has no cycles, remove one of these "
          "inputs");
  }

  TEST_CASE("names are one space and have no spaces") {
    CHECK(refused([](ModelGraph& g) { g.layers[2].name = "a"; }) ==
          "[data] /layers/2/name: duplicate name \"a\", already at /layers/0; rename one of them");
    CHECK(refused([](ModelGraph& g) { g.layers[2].name = "label"; }) ==
          "[data] /layers/2/name: duplicate name \"label\", already at /targets/0; rename one of them");
    CHECK(refused([](ModelGraph& g) { g.layers[2].name = "a b"; }) ==
          "[data] /layers/2/name: \"a b\" is not a name; use letters, digits and _ . - /");
    CHECK(refused([](ModelGraph& g) { g.inputs[0].name = ""; }) ==
          "[data] /inputs/0/name: \"\" is not a name; use letters, digits and _ . - /");
  }

  TEST_CASE("two parameters of one name are refused, they would share a key in every checkpoint") {
    CHECK(refused([](ModelGraph& g) {
            g.inputs[0].type.shape = {4, 6};
            g.layers[0] = layer("a", "multi_head_attention", {"x"}, {{"num_heads", whole(1)}});
            g.layers[2].name = "a.out_proj";
            g.outputs = {"a.out_proj"};
            g.loss.reset();
          }) ==
          "[data] /layers/2/name: parameter \"a.out_proj.weight\" belongs to layer \"a\" already; rename one "
          "of the two layers");
  }

  TEST_CASE("the number of inputs is checked") {
    CHECK(refused([](ModelGraph& g) { g.layers[1] = layer("b", "add", {"a"}); }) ==
          "[data] /layers/1/inputs: has 1 entry; add needs at least 2");
    CHECK(refused([](ModelGraph& g) {
            g.layers[1].inputs = {"a", "a"};
          }) == "[data] /layers/1/inputs: has 2 entries; relu needs 1");
    CHECK(refused([](ModelGraph& g) {
            g.layers[1] = layer("b", "multi_head_attention", {"a", "a", "a"}, {{"num_heads", whole(1)}});
          }) == "[data] /layers/1/inputs: has 3 entries; multi_head_attention needs 1 to 2");
    CHECK(refused([](ModelGraph& g) { g.loss->inputs = {"c"}; }) ==
          "[data] /loss/inputs: has 1 entry; cross_entropy needs 2");
  }

  TEST_CASE("a layer that nobody uses is dead, unless it is an output") {
    const auto add_tail = [](ModelGraph& g) { g.layers.push_back(layer("tail", "tanh", {"b"})); };
    CHECK(refused(add_tail) ==
          "[data] /layers/3: nothing uses the output of \"tail\"; remove the layer, or add it to /outputs");
    CHECK(refused([&](ModelGraph& g) { add_tail(g), g.outputs.push_back("tail"); }) == "no error");
  }

  TEST_CASE("an empty model is refused") {
    CHECK(refused([](ModelGraph& g) { g.layers.clear(); }) ==
          "[data] /layers: is empty; a model needs at least one layer");
    CHECK(refused([](ModelGraph& g) { g.outputs.clear(); }) ==
          "[data] /outputs: is empty; name the layer whose output is the result");
  }

  TEST_CASE("pointers start where the model stands") {
    ModelGraph graph = chain();
    graph.layers[1].op = "reluu";
    CHECK(test::error_text([&] { return resolve(graph, "/model"); }) ==
          std::string("[data] /model/layers/1/op: unknown operation \"reluu\"; use one of ") + kOps);
  }
}

TEST_SUITE("libprofile/core/model/model_resolve/weights_of") {
  /// x [4] -> a: linear 4 -> b: linear 4 with a's weights -> c: linear 4 with b's.
  ModelGraph tied() {
    ModelGraph graph = chain();
    graph.layers = {layer("a", "linear", {"x"}, {{"out_features", whole(4)}}),
                    layer("b", "linear", {"a"}, {{"out_features", whole(4)}}),
                    layer("c", "linear", {"b"}, {{"out_features", whole(4)}})};
    graph.layers[1].weights_of = "a";
    graph.layers[2].weights_of = "b";
    return graph;
  }
  std::string refused_tied(const std::string& weights_of, const Layer& last) {
    ModelGraph graph = tied();
    graph.layers[2] = last;
    graph.layers[2].weights_of = weights_of;
    graph.loss.reset();
    return test::error_text([&] { return resolve(graph); });
  }

  TEST_CASE("shared weights belong to the first layer of the chain and count once") {
    const ResolvedModel model = resolve(tied());
    CHECK((model.layers[0].weights_layer == 0));
    CHECK((model.layers[1].weights_layer == 0));
    CHECK((model.layers[2].weights_layer == 0));
    CHECK(parameter_count(model) == 20);  // 4*4 + 4
    CHECK(parameter_bytes(model, 1, DType::float32) == Bytes(0));
    CHECK((model.layers[1].parameters == model.layers[0].parameters));
  }

  TEST_CASE("a head may share an embedding's table: the parameters are equal, the ops are not") {
    ModelGraph graph = chain();
    graph.inputs[0].type = {{5}, DType::int64};
    graph.targets[0].type.shape = {5};
    graph.layers = {layer("a", "embedding", {"x"}, {{"num_embeddings", whole(9)}, {"embedding_dim", whole(2)}}),
                    layer("c", "linear", {"a"}, {{"out_features", whole(9)}, {"bias", false}})};
    graph.layers[1].weights_of = "a";
    CHECK(parameter_count(resolve(graph)) == 18);  // 9*2
  }

  TEST_CASE("only an earlier layer with equal parameters can share them") {
    const Layer wide = layer("c", "linear", {"b"}, {{"out_features", whole(5)}});
    CHECK(refused_tied("a", wide) ==
          "[data] /layers/2/weights_of: \"a\" has weight [4, 4], bias [4], but \"c\" needs weight [5, 4], bias "
          "[5]; share equal "
          "parameters only");
    CHECK(refused_tied("c", wide) ==
          "[data] /layers/2/weights_of: \"c\" is no earlier layer; name one that stands before \"c\"");
    CHECK(refused_tied("x", wide) ==
          "[data] /layers/2/weights_of: \"x\" is no earlier layer; name one that stands before \"c\"");
    CHECK(refused_tied("a", layer("c", "relu", {"b"})) ==
          "[data] /layers/2/weights_of: relu \"c\" has no parameters to share; remove this key");
  }
}

}  // namespace model_resolve_test
