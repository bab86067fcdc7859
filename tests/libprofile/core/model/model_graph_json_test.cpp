#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/libprofile/core/golden.h"
#include "tests/support/doctest.h"

namespace model_graph_json_test {

using namespace pp;
using pp::test::golden;

namespace {

/// The smallest model a person would write.
constexpr const char* kShort = R"({
  "format": "pp.model", "version": 1, "name": "tiny",
  "inputs": [{"name": "x", "shape": [4]}],
  "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 2}},
             {"name": "b", "op": "dropout", "inputs": ["a"], "attributes": {"p": 0}}],
  "outputs": ["b"]})";

std::string refused(const std::string& from, const std::string& to) {
  std::string text = kShort;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  return test::error_text([&] { return parse_model(text); });
}

}  // namespace

TEST_SUITE("libprofile/core/model/model_graph_json") {
  TEST_CASE("lenet5 is the golden file, byte for byte, both ways") {
    const ModelGraph graph = model::build_family("lenet5");
    CHECK(dump_json(to_json(graph)) == golden("lenet5.model.json"));
    CHECK((parse_model(golden("lenet5.model.json")) == graph));
  }

  TEST_CASE("a document of every feature survives the round trip") {
    const std::string text = golden("features.model.json");
    const ModelGraph graph = parse_model(text);
    CHECK(dump_json(to_json(graph)) == text);
    CHECK((parse_model(dump_json_compact(to_json(graph))) == graph));
  }

  TEST_CASE("a person may leave out what has a default, a tool writes it") {
    const ModelGraph graph = parse_model(kShort);
    CHECK(graph.inputs[0].type.dtype == DType::float32);
    CHECK((graph.layers[0].attributes == Attributes{{"out_features", std::int64_t{2}}, {"bias", true}}));
    CHECK((graph.layers[1].attributes == Attributes{{"p", 0.0}}));
    CHECK(graph.targets.empty());
    CHECK(!graph.loss.has_value());
    CHECK(
        dump_json_compact(to_json(graph)) ==
        R"({"format":"pp.model","version":1,"name":"tiny","inputs":[{"name":"x","dtype":"float32","shape":[4]}],"targets":[],)"
        R"("layers":[{"name":"a","op":"linear","inputs":["x"],"attributes":{"out_features":2,"bias":true}},)"
        R"({"name":"b","op":"dropout","inputs":["a"],"attributes":{"p":0.0}}],"outputs":["b"]})");
  }

  TEST_CASE("the hash is of the meaning: defaults and layout do not change it, sizes do") {
    const ModelGraph graph = parse_model(kShort);
    ModelGraph unfilled = graph;
    unfilled.layers[0].attributes.erase("bias");
    CHECK(model_hash(unfilled) == model_hash(graph));
    CHECK(model_hash(parse_model(dump_json(to_json(graph)))) == model_hash(graph));
    ModelGraph wider = graph;
    wider.layers[0].attributes["out_features"] = std::int64_t{3};
    CHECK(model_hash(wider) != model_hash(graph));
    CHECK(model_hash(graph).starts_with("sha256:"));
    CHECK(model_hash(graph).size() == 7 + 64);
  }

  TEST_CASE("wrong keys and types are refused where they stand") {
    CHECK(refused("\"outputs\"", "\"output\"") == "[data] /outputs: missing; add this key, an array");
    CHECK(
        refused("\"op\": \"dropout\",", "\"op\": \"dropout\", \"p\": 1,") ==
        "[data] /layers/1/p: unknown key; use one of name, op, inputs, scope, attributes, weights_of, frozen");
    CHECK(refused("\"shape\": [4]", "\"shape\": [4.5]") ==
          "[data] /inputs/0/shape/0: must be an integer from 1 upwards, not 4.5");
    CHECK(refused("\"shape\": [4]", "\"dtype\": \"float\", \"shape\": [4]") ==
          "[data] /inputs/0/dtype: unknown name \"float\"; did you mean float32? Use one of float32, float64, "
          "bfloat16, int64, "
          "uint8, bool");
    CHECK(refused("{\"p\": 0}", "{\"p\": [0]}") ==
          "[data] /layers/1/attributes/p: must be a number from 0.0 to 0.99, not [0]");
    CHECK(refused("{\"p\": 0}", "{\"p\": 1.5}") ==
          "[data] /layers/1/attributes/p: must be a number from 0.0 to 0.99, not 1.5");
    CHECK(refused("[\"x\"]", "\"x\"") == "[data] /layers/0/inputs: must be an array, not \"x\"");
  }
}

}  // namespace model_graph_json_test
