// The word `frozen`, and where gradients flow: which parameters are trained, who runs a backward.
#include <nlohmann/json.hpp>

#include "libprofile/core/model/model_graph.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace frozen_test {

using namespace pp;

namespace {

using Names = std::vector<std::string>;

/// a: linear -> t: tanh -> g: a graph of two calls of one linear, their sum and a linear without bias -> head.
constexpr std::string_view kModel = R"({ "format": "pp.model", "version": 1, "name": "m",
  "inputs": [{ "name": "x", "shape": [4] }],
  "targets": [{ "name": "y", "dtype": "int64", "shape": [] }],
  "layers": [
    { "name": "a", "op": "linear", "inputs": ["x"], "attributes": { "out_features": 4 } },
    { "name": "t", "op": "tanh", "inputs": ["a"] },
    { "name": "g", "op": "graph", "inputs": ["t"],
      "nodes": [
        { "name": "one", "op": "linear", "inputs": ["t"], "scope": "lin", "attributes": { "out_features": 4 } },
        { "name": "two", "op": "linear", "inputs": ["one"], "scope": "lin", "attributes": { "out_features": 4 } },
        { "name": "low", "op": "linear", "inputs": ["t"], "attributes": { "out_features": 4, "bias": false } },
        { "name": "sum", "op": "add", "inputs": ["two", "low"] } ],
      "outputs": ["sum"] },
    { "name": "b", "op": "linear", "inputs": ["g"], "attributes": { "out_features": 4 }, "weights_of": "a" },
    { "name": "head", "op": "linear", "inputs": ["b"], "attributes": { "out_features": 3 } } ],
  "outputs": ["head"],
  "loss": { "op": "cross_entropy", "inputs": ["head", "y"] } })";

enum : std::size_t { kA, kT, kG, kB, kHead };
enum : std::size_t { kOne, kTwo, kLow, kSum };
using Change = std::function<void(Json& layers)>;

Json changed(const Change& change) {
  Json json = parse_json(kModel);
  change(json["layers"]);
  return json;
}
ModelGraph read(const Change& change) { return model_from_json(changed(change)); }
/// Without its kind, data.
std::string refused(const Change& change) {
  const std::string text = test::error_text([&] { read(change); });
  CHECK(text.starts_with("[data] "));
  return text.substr(7);
}

/// The model-wide names of what is trained.
Names trained(const ResolvedModel& model) {
  Names names;
  for (int l = 0; l < model.layer_count(); ++l) {
    const ResolvedLayer& layer = model.layers[static_cast<std::size_t>(l)];
    for (std::size_t i = 0; layer.weights_layer == l && i < layer.parameters.size(); ++i) {
      if (layer.trained[i]) names.push_back(parameter_name(model, l, i));
    }
  }
  return names;
}
Names trained(const Change& change) { return trained(resolve(read(change))); }

/// A letter per layer: `b` runs a backward, `i` hands a gradient back, `.` nothing.
std::string backwards(const ResolvedModel& model) {
  std::string text;
  for (const ResolvedLayer& layer : model.layers) {
    const bool inputs = std::ranges::find(layer.input_gradient, true) != layer.input_gradient.end();
    text += inputs ? 'i' : layer.backward ? 'b' : '.';
  }
  return text;
}
std::string backwards(const Change& change) { return backwards(resolve(read(change))); }

}  // namespace

TEST_SUITE("libprofile/core/model/frozen") {
  TEST_CASE("what names no frozen parameter is written as before, what does in its shortest form") {
    const std::string plain = dump_json(to_json(parse_model(kModel)));
    CHECK(plain.find("frozen") == std::string::npos);
    CHECK(dump_json(to_json(read([](Json& l) { l[kA]["frozen"] = false; }))) == plain);
    CHECK(dump_json(to_json(read([](Json& l) { l[kA]["frozen"] = Json::array(); }))) == plain);
    const auto frozen = [](std::size_t layer, const Change& change) {
      return to_json(read(change))["layers"][layer].value("frozen", Json());
    };
    CHECK(frozen(kA, [](Json& l) { l[kA]["frozen"] = {"bias", "weight"}; }) == Json(true));
    CHECK(frozen(kHead, [](Json& l) { l[kHead]["frozen"] = {"weight"}; }) == Json({"weight"}));
    // Of a graph: at the nodes that own them, or at the layer where all are.
    const Change all = [](Json& l) {
      l[kG]["nodes"][kOne]["frozen"] = true;
      l[kG]["nodes"][kLow]["frozen"] = true;
    };
    CHECK(frozen(kG, all) == Json(true));
    CHECK(read(all).layers[kG].nodes[kOne].frozen.none());
    CHECK((read([](Json& l) { l[kG]["frozen"] = true; }) == read(all)));
    const ModelGraph some = read([](Json& l) { l[kG]["frozen"] = {"lin.weight", "lin.bias"}; });
    CHECK(some.layers[kG].frozen.none());
    CHECK(some.layers[kG].nodes[kOne].frozen.all);
    CHECK(some.layers[kG].nodes[kTwo].frozen.none());
    const std::string written = dump_json(to_json(some));
    CHECK((parse_model(written) == some));
    CHECK(model_hash(some) != model_hash(parse_model(kModel)));
  }

  TEST_CASE("a shared parameter is what its owner says; another word is refused") {
    CHECK(trained([](Json& l) { l[kA]["frozen"] = true; }) ==
          Names{"g.lin.weight", "g.lin.bias", "g.low.weight", "head.weight", "head.bias"});
    const Change both = [](Json& l) { l[kA]["frozen"] = true, l[kB]["frozen"] = {"weight"}; };
    CHECK((read(both) == read([](Json& l) { l[kA]["frozen"] = true; })));
    CHECK(refused([](Json& l) { l[kB]["frozen"] = true; }) ==
          "/layers/3/frozen: \"weight\" belongs to layer \"a\", which trains it; freeze it there, or nowhere");
    CHECK(refused([](Json& l) { l[kG]["nodes"][kTwo]["frozen"] = {"bias"}; }) ==
          "/layers/2/nodes/1/frozen: \"bias\" belongs to node \"one\", which trains it; freeze it there, or "
          "nowhere");
  }

  TEST_CASE("what is no parameter is refused by name") {
    CHECK(refused([](Json& l) {
            l[kHead]["frozen"] = {"bias", "wieght"};
          }) == "/layers/4/frozen/1: \"wieght\" is no parameter here; use names of weight, bias");
    CHECK(refused([](Json& l) {
            l[kHead]["frozen"] = {"bias", "bias"};
          }) == "/layers/4/frozen/1: \"bias\" stands here twice");
    CHECK(refused([](Json& l) { l[kT]["frozen"] = true; }) ==
          "/layers/1/frozen: there are no parameters to freeze here; remove this key");
    CHECK(refused([](Json& l) { l[kG]["nodes"][kSum]["frozen"] = {"x"}; }) ==
          "/layers/2/nodes/3/frozen: there are no parameters to freeze here; remove this key");
    CHECK(refused([](Json& l) { l[kA]["frozen"] = "all"; }) ==
          "/layers/0/frozen: must be true, or a list of names of the layer's parameters");
  }

  TEST_CASE("a backward runs where something trained stands upstream, and nowhere else") {
    CHECK(backwards([](Json&) {}) == "biiii");
    CHECK(backwards([](Json& l) { l[kA]["frozen"] = true; }) == "..bii");
    CHECK(backwards([](Json& l) { l[kA]["frozen"] = {"weight"}; }) == "biiii");
    CHECK(backwards([](Json& l) { l[kA]["frozen"] = l[kG]["frozen"] = true; }) == "....b");
    const Change everything = [](Json& l) { l[kA]["frozen"] = l[kG]["frozen"] = l[kHead]["frozen"] = true; };
    CHECK(backwards(everything) == ".....");
    CHECK(trained(everything).empty());
    CHECK_FALSE(resolve(read(everything)).loss.backward);
    const ResolvedModel some = resolve(read([](Json& l) { l[kA]["frozen"] = {"weight"}; }));
    CHECK(parameter_bytes(some, 0, DType::float32) == Bytes(80));
    CHECK(trained_bytes(some, 0, DType::float32) == Bytes(16));
    CHECK(trained_bytes(some, static_cast<int>(kB), DType::float32) == Bytes(0));  // of a
  }

  TEST_CASE("what the loss does not read is not trained, nor what stands before a detach") {
    // A second head that leaves the model and nothing else.
    const Change aux = [](Json& l) {
      l.push_back(
          {{"name", "aux"}, {"op", "linear"}, {"inputs", {"t"}}, {"attributes", {{"out_features", 2}}}});
    };
    Json json = changed(aux);
    json["outputs"].push_back("aux");
    const ResolvedModel with_aux = resolve(model_from_json(json));
    CHECK(trained(with_aux) == Names{"a.weight", "a.bias", "g.lin.weight", "g.lin.bias", "g.low.weight",
                                     "head.weight", "head.bias"});
    CHECK(backwards(with_aux) == "biiii.");
    json.erase("loss");
    json.erase("targets");
    CHECK(trained(resolve(model_from_json(json))).size() == 9);  // without a loss: all that leaves

    const auto detach = [](const char* name, const char* input) {
      return Json{{"name", name},
                  {"op", "aten"},
                  {"inputs", {input}},
                  {"call",
                   {{"target", "aten::detach"},
                    {"arguments", {{"self", {{"input", 0}}}}},
                    {"outputs", {{{"shape", {4}}}}}}}};
    };
    // Between layers: b still trains a, g's way back is cut.
    const Change between = [&](Json& l) {
      l.insert(l.begin() + kB, detach("cut", "g"));
      l[kB + 1]["inputs"] = {"cut"};
    };
    CHECK(trained(between) == Names{"a.weight", "a.bias", "head.weight", "head.bias"});
    CHECK(backwards(between) == "....bi");
    // Within a graph: the twice called linear is cut off, the other way is not.
    const Change within = [&](Json& l) {
      Json& nodes = l[kG]["nodes"];
      nodes.insert(nodes.begin() + kLow, detach("cut", "two"));
      nodes.back()["inputs"] = {"cut", "low"};
    };
    CHECK(trained(within) == Names{"a.weight", "a.bias", "g.low.weight", "head.weight", "head.bias"});
    CHECK(backwards(within) == "biiii");
  }
}

}  // namespace frozen_test
