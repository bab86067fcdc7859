// Layers that are small graphs, calls of LibTorch, and scopes: read, written and checked without Torch.
#include <nlohmann/json.hpp>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/model/model_traits.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/imported_models.h"
#include "tests/support/doctest.h"

namespace graph_layer_test {

using namespace pp;

namespace {

/// Changes the document of the imported attention and reads it.
std::string refused(const std::function<void(Json&)>& change) {
  Json json = parse_json(pp::test::imported_attention_text());
  change(json);
  return pp::test::error_text([&] { return model_from_json(json); });
}

constexpr std::size_t kAttn = 1, kSum = 2;
Json& node(Json& json, std::size_t k) { return json["layers"][kAttn]["nodes"][k]; }
Json& call(Json& json) { return json["layers"][kSum]["call"]; }

}  // namespace

TEST_SUITE("libprofile/core/model/graph_layer") {
  TEST_CASE("what is read is written and read again, with the same hash") {
    for (const ModelGraph& model : {pp::test::imported_residual(), pp::test::imported_attention()}) {
      const std::string written = dump_json(to_json(model));
      CHECK((parse_model(written) == model));
      CHECK(dump_json(to_json(parse_model(written))) == written);
      CHECK(model_hash(parse_model(written)) == model_hash(model));
    }
  }

  TEST_CASE("a graph has the parameters of its nodes, under the names of a module tree") {
    const ResolvedModel model = resolve(pp::test::imported_residual());
    const auto names = [&](int layer) {
      std::vector<std::string> all;
      const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
      for (std::size_t i = 0; i < resolved.parameters.size(); ++i)
        all.push_back(parameter_name(model, layer, i));
      for (std::size_t i = 0; i < resolved.buffers.size(); ++i) all.push_back(buffer_name(model, layer, i));
      return all;
    };
    CHECK(names(0) == std::vector<std::string>{"features.stem.weight", "features.stem.bias"});
    CHECK(names(1) == std::vector<std::string>{"layer1.0.conv1.weight", "layer1.0.bn1.weight",
                                               "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                                               "layer1.0.bn2.weight", "layer1.0.bn2.bias",
                                               "layer1.0.bn1.running_mean", "layer1.0.bn1.running_var",
                                               "layer1.0.bn2.running_mean", "layer1.0.bn2.running_var"});
    CHECK(names(2) == std::vector<std::string>{"layer1.0.gain"});
    CHECK(names(3) == std::vector<std::string>{"twice.conv.weight", "twice.conv.bias"});  // called twice
    CHECK(names(5) == std::vector<std::string>{"weight", "bias"});
    CHECK((model.layers[1].outputs == std::vector<TensorType>{{{4, 6, 6}}}));
    const std::vector<BatchNorm> norms = batch_norms(model, 1);
    REQUIRE(norms.size() == 2);
    CHECK(norms[0].buffer == 0);
    CHECK(norms[0].momentum == 0.2);
    CHECK(norms[1].buffer == 2);
    CHECK(norms[1].momentum == 0.1);
    CHECK(norms[1].values == 36);
    // conv1 and conv2 144 * 2 * 36 each, two norms 8 * 144, relu 144, two dropouts 2 * 144, add 288
    CHECK(model.layers[1].forward_flops.value == 2 * 144 * 72 + 16 * 144 + 144 + 4 * 144 + 288);
  }

  TEST_CASE("a softmax over two rows a sample counts for both") {
    const ResolvedModel model = resolve(pp::test::imported_attention());
    const std::vector<ResolvedNode>& nodes = model.layers[kAttn].nodes;
    CHECK((nodes[14].outputs == std::vector<RowTensor>{{{{6, 6}}, 2}}));
    CHECK((model.layers[kAttn].outputs[1] == TensorType{{6}, DType::boolean}));
    // qkv 6 * 24 * 17, scores 576, softmax 5 and dropout 2 for each of 2 * 36
    CHECK(model.layers[kAttn].forward_flops.value == 6 * 24 * 17 + 576 + 7 * 72);
  }

  TEST_CASE("a scope that says what the name says is none") {
    Json json = parse_json(pp::test::imported_attention_text());
    json["layers"][kSum]["scope"] = "sum";
    CHECK(model_hash(model_from_json(json)) == model_hash(pp::test::imported_attention()));
  }

  TEST_CASE("integers of the data are limited by what reads them, through graphs and calls") {
    const ResolvedModel attention = resolve(pp::test::imported_attention()),
                        residual = resolve(pp::test::imported_residual());
    using Kind = TensorSource::Kind;
    CHECK(index_limit(attention, {Kind::input, 0, 0}) == 11);
    CHECK(index_limit(attention, {Kind::target, 0, 0}) == 3);
    CHECK(index_limit(residual, {Kind::target, 0, 0}) == 3);  // of nll_loss_nd in the loss
  }

  TEST_CASE("calls limit the integers that they index by") {
    const auto limit = [](const std::string& call) {
      const std::string text = R"({"format": "pp.model", "version": 1, "name": "m", "outputs": ["a"],
        "inputs": [{"name": "x", "dtype": "int64", "shape": [4]}],
        "layers": [{"name": "a", "op": "aten", "inputs": ["x"], "call": )" +
                               call + "}]}";
      return index_limit(resolve(parse_model(text)), {TensorSource::Kind::input, 0, 0});
    };
    CHECK(limit(R"({"target": "aten::one_hot", "arguments": {"self": {"input": 0}, "num_classes": 7},
      "outputs": [{"dtype": "int64", "shape": [4, 7]}]})") == 7);
    CHECK(limit(R"({"target": "aten::index.Tensor", "outputs": [{"shape": [4, 3]}],
      "parameters": [{"name": "p", "shape": [11, 3]}],
      "arguments": {"self": {"parameter": "p"}, "indices": [{"input": 0}]}})") == 11);
    CHECK(limit(R"({"target": "aten::index.Tensor", "outputs": [{"shape": [4, 3]}],
      "buffers": [{"name": "b", "shape": [5, 3]}],
      "arguments": {"self": {"buffer": "b"}, "indices": [{"input": 0}]}})") == 5);
    CHECK(limit(R"({"target": "aten::neg", "arguments": {"self": {"input": 0}},
      "outputs": [{"dtype": "int64", "shape": [4]}]})") == 0);
  }

  TEST_CASE("the limit of integers comes back through any number of layers") {
    constexpr int kLayers = 50'000;
    ModelGraph graph;
    graph.name = "long";
    graph.inputs = {{"x", {{4}, DType::int64}}};
    std::string last = "x";
    for (int l = 0; l < kLayers; ++l) {
      graph.layers.push_back({"f" + std::to_string(l), "flatten", {last}, {}, ""});
      last = graph.layers.back().name;
    }
    graph.layers.push_back({"e",
                            "embedding",
                            {last},
                            {{"num_embeddings", std::int64_t{7}}, {"embedding_dim", std::int64_t{1}}},
                            ""});
    graph.outputs = {"e"};
    CHECK(index_limit(resolve(graph), {TensorSource::Kind::input, 0, 0}) == 7);
  }

  TEST_CASE("a batch in another dimension stays within calls") {
    const auto changed = [](std::size_t k, std::int64_t rows) {
      return refused([&](Json& j) {
        node(j, k)["call"]["outputs"][0]["rows"] = rows;
        node(j, k)["call"]["outputs"][0]["batch_dim"] = 1;
      });
    };
    // Node 13 feeds the softmax, 14; the outputs of 24 leave.
    CHECK(changed(13, 2) ==
          "[data] /layers/1/nodes/14/inputs/0: \"masked\" has its batch in dimension 1, softmax "
          "needs it in front");
    Json json = parse_json(pp::test::imported_attention_text());
    node(json, 1)["call"]["outputs"][0]["batch_dim"] = 1;
    const ModelGraph graph = model_from_json(json);
    CHECK(to_json(graph)["layers"][kAttn]["nodes"][1]["call"]["outputs"][0]["batch_dim"] == 1);
    CHECK((full_shape({{{5, 6}}, 3, 1}, 2) == Shape{5, 6, 6}));
    CHECK((full_shape({{{5, 6}}, 0}, 2) == Shape{5, 6}));
  }

  TEST_CASE("graphs are refused where they are wrong") {
    CHECK(refused([](Json& j) { node(j, 1)["inputs"][0] = "q"; }) ==
          "[data] /layers/1/nodes/1/inputs/0: \"q\" is no earlier node and no input of the layer; nodes stand "
          "behind those that they read");
    CHECK(refused([](Json& j) { node(j, 3)["inputs"][0] = "split:3"; }) ==
          "[data] /layers/1/nodes/3/inputs/0: \"split\" has no output \"3\"; use 0 to 2");
    CHECK(refused([](Json& j) { node(j, 0)["name"] = "wte"; }) ==
          "[data] /layers/1/nodes/0/name: \"wte\" is the name of an input of the layer; rename the node");
    CHECK(refused([](Json& j) { node(j, 2)["name"] = "qkv"; }) ==
          "[data] /layers/1/nodes/2/name: duplicate name \"qkv\"; rename one of the nodes");
    CHECK(refused([](Json& j) { node(j, 14)["op"] = "graph"; }) ==
          "[data] /layers/1/nodes/14/op: a graph has no graphs; write its nodes into this one");
    CHECK(refused([](Json& j) { node(j, 14)["weights_of"] = "x"; }) ==
          "[data] /layers/1/nodes/14/weights_of: unknown key; use one of name, op, inputs, scope, attributes, "
          "frozen");
    CHECK(refused([](Json& j) { j["layers"][kAttn]["outputs"] = {"chosen"}; }) ==
          "[data] /layers/6/inputs/2: \"attn\" has no output \"1\"; it has one, write \"attn\"");
    CHECK(
        refused([](Json& j) {
          j["layers"][kAttn]["outputs"] = {"chosen", "scores"};
        }) ==
        "[data] /layers/1/outputs/1: \"scores\" has 2 rows a sample, what leaves here has 1; end with a view");
    CHECK(refused([](Json& j) {
            j["layers"][kAttn]["outputs"] = {"chosen", "x"};
          }) == "[data] /layers/1/outputs/1: \"x\" is no node; name outputs of nodes");
    CHECK(refused([](Json& j) {
            node(j, 15)["inputs"][0] = "relative";
          }).starts_with("[data] /layers/1/nodes/15/inputs/0: \"relative\" is no earlier node"));
    CHECK(refused([](Json& j) {
            Json dead = node(j, 0);
            dead["name"] = "dead";
            j["layers"][kAttn]["nodes"].push_back(dead);
          }) ==
          "[data] /layers/1/nodes/25: nothing uses the output of \"dead\"; remove the node, or add it to "
          "/layers/1/outputs");
    CHECK(refused([](Json& j) { j["layers"][kAttn]["inputs"].push_back("wte:0"); }) ==
          "[data] /layers/1/inputs/2: no node reads \"wte:0\"; remove this input");
    CHECK(refused([](Json& j) { j["layers"][kAttn]["scope"] = "../../etc/passwd"; }) ==
          "[data] /layers/1/scope: \"../../etc/passwd\" is no module's path; use letters, digits, _ - and . "
          "between them, or \"\"");
    CHECK(refused([](Json& j) {
            j["layers"][kAttn]["attributes"] = Json::object();
          }).starts_with("[data] /layers/1/attributes: unknown key"));
  }

  TEST_CASE("calls are refused where they are wrong") {
    CHECK(refused([](Json& j) {
            call(j)["arguments"]["other"] = {{"input", 2}};
          }) == "[data] /layers/2/call/arguments/other: there is no input 2, the call has 2");
    CHECK(refused([](Json& j) { call(j)["arguments"]["other"] = 1; }) ==
          "[data] /layers/2/call/arguments: input 1 is not used; remove it");
    CHECK(refused([](Json& j) {
            call(j)["arguments"]["other"] = {{"parameter", "w"}};
          }) ==
          "[data] /layers/2/call/arguments/other/parameter: unknown name \"w\"; list it under parameters");
    CHECK(refused([](Json& j) {
            call(j)["arguments"]["other"] = {{"file", "w"}};
          }) ==
          "[data] /layers/2/call/arguments/other: an object has one key: input, parameter, buffer, constant, "
          "batch, dtype or number");
    CHECK(refused([](Json& j) {
            call(j)["arguments"]["alpha"] = {{"batch", {1}}};
          }) == "[data] /layers/2/call/arguments/alpha/batch: must be [a, c], for a times the samples plus c");
    CHECK(refused([](Json& j) { call(j)["arguments"]["alpha"] = Json::parse("[[[[1]]]]"); }) ==
          "[data] /layers/2/call/arguments/alpha/0/0/0: lists stand at most 3 deep in an argument");
    CHECK(refused([](Json& j) {
            call(j)["parameters"] = {{{"name", "a/b"}, {"shape", {1}}}};
          }) ==
          "[data] /layers/2/call/parameters/0/name: \"a/b\" is not a name; use letters, digits, _ - and . "
          "between them");
    CHECK(refused([](Json& j) {
            call(j)["parameters"] = {{{"name", "a"}, {"dtype", "int64"}, {"shape", {1}}}};
          }) == "[data] /layers/2/call/parameters/0/dtype: only floating tensors are trained");
    CHECK(refused([](Json& j) {
            call(j)["constants"] = {{{"name", "c"}, {"shape", {3}}, {"values", {1, 2}}}};
          }) == "[data] /layers/2/call/constants/0/values: has 2 values, the shape [3] needs 3");
    CHECK(refused([](Json& j) {
            call(j)["constants"] = {{{"name", "c"}, {"dtype", "bool"}, {"shape", {2}}, {"values", {1, 2}}}};
          }) ==
          "[data] /layers/2/call/constants/0/values/1: must be an integer from 0 to 1, as the type bool wants");
    CHECK(refused([](Json& j) {
            call(j)["constants"] = {{{"name", "c"}, {"shape", {1 << 30}}, {"values", Json::array()}}};
          }) ==
          "[data] /layers/2/call/constants/0/values: a constant has at most 1048576 values; make it a buffer");
    CHECK(
        refused([](Json& j) { call(j)["outputs"][0]["rows"] = 2; }) ==
        "[data] /layers/2/call/outputs/0/rows: must be 1, a layer's outputs have one row a sample; put a view "
        "behind it, in a graph");
    CHECK(refused([](Json& j) { call(j)["outputs"][0]["batch_dim"] = 1; }) ==
          "[data] /layers/2/call/outputs/0/batch_dim: must be 0, a layer's outputs have the batch in front; "
          "put a "
          "transpose behind it, in a graph");
    CHECK(refused([](Json& j) {
            call(j)["outputs"][0]["batch_dim"] = 9;
          }).starts_with("[data] /layers/2/call/outputs/0/batch_dim: must be"));
    CHECK(refused([](Json& j) { call(j)["outputs"] = Json::array(); }) ==
          "[data] /layers/2/call/outputs: is empty; a call has at least one output");
    CHECK(refused([](Json& j) {
            call(j)["outputs"][0]["shape"] = {1 << 30, 1 << 30};
          }) == "[data] /layers/2/call/outputs/0/shape: has more than 2^40 elements; use smaller sizes");
    CHECK(refused([](Json& j) {
            j["layers"][kSum].erase("call");
          }).starts_with("[data] /layers/2/call: missing"));
    CHECK(refused([](Json& j) { j["inputs"][0]["dtype"] = "bool"; }) ==
          "[data] /inputs/0/dtype: data are no bool; use uint8, 0 and 1");
  }

  TEST_CASE("a graph as loss is one number without a batch, and trains nothing") {
    const auto changed = [](const std::function<void(Json&)>& change) {
      Json json = parse_json(pp::test::imported_residual_text());
      change(json["loss"]);
      return pp::test::error_text([&] { return model_from_json(json); });
    };
    CHECK(changed([](Json& loss) {
            loss["outputs"] = {"log"};
            loss["nodes"].erase(1);
            loss["inputs"].erase(1);
          }) == "[data] /loss/outputs/0: \"log\" has 1 rows a sample, what leaves here has 0; end with a view");
    CHECK(
        changed([](Json& loss) { loss["inputs"] = {"y"}; }).starts_with("[data] /loss/inputs: names no layer"));
  }
}

}  // namespace graph_layer_test
