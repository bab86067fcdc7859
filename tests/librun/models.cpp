#include "tests/librun/models.h"

#include <algorithm>
#include <string>

namespace pp::test {

namespace {

using namespace pp;

// Appends layers one after the other, each reading the one before unless told otherwise.
class Builder {
 public:
  Builder(std::string name, Shape input) {
    graph_.name = std::move(name);
    graph_.inputs = {{"x", {std::move(input), DType::float32}}};
    graph_.targets = {{"y", {{}, DType::int64}}};
  }

  Builder& add(const std::string& name, const std::string& op, Attributes attributes = {},
               std::vector<std::string> inputs = {}) {
    if (inputs.empty()) inputs = {graph_.layers.empty() ? "x" : graph_.layers.back().name};
    graph_.layers.push_back({name, op, std::move(inputs), std::move(attributes), ""});
    return *this;
  }
  Builder& linear(const std::string& name, std::int64_t features) {
    return add(name, "linear", {{"out_features", features}});
  }
  Builder& conv(const std::string& name, std::int64_t channels) {
    return add(name, "conv2d",
               {{"out_channels", channels}, {"kernel_size", std::int64_t{3}}, {"padding", std::int64_t{1}}});
  }

  ModelGraph finish(const std::string& loss = "cross_entropy") {
    graph_.outputs = {graph_.layers.back().name};
    graph_.loss = LossSpec{loss, {graph_.layers.back().name, "y"}, {}};
    return graph_;
  }
  ModelGraph& graph() { return graph_; }

 private:
  ModelGraph graph_;
};

}  // namespace

ModelGraph mlp(int layers) {
  Builder model("mlp", {5});
  for (int i = 0; i < layers; ++i) {
    model.linear("fc" + std::to_string(i), 6).add("tanh" + std::to_string(i), "tanh");
  }
  return model.linear("head", 3).finish();
}

ModelGraph shared_mlp() {
  Builder model("shared_mlp", {5});
  model.linear("first", 6).add("tanh", "tanh");
  for (int i = 0; i < 3; ++i) {
    model.linear("shared" + std::to_string(i), 6);
    if (i > 0) model.graph().layers.back().weights_of = "shared0";
    model.add("tanh" + std::to_string(i), "tanh");
  }
  return model.linear("head", 3).finish();
}

ModelGraph dropout_mlp() {
  const Attributes half{{"p", 0.5}};
  return Builder("dropout_mlp", {5})
      .linear("fc0", 16)
      .add("relu0", "relu")
      .add("drop0", "dropout", half)
      .linear("fc1", 16)
      .add("relu1", "relu")
      .add("drop1", "dropout", half)
      .linear("fc2", 16)
      .linear("head", 3)
      .finish();
}

ModelGraph residual_net() {
  Builder model("residual_net", {2, 6, 6});
  model.conv("conv0", 4).add("bn0", "batch_norm2d").add("relu0", "relu");
  model.conv("conv1", 4).add("bn1", "batch_norm2d").add("relu1", "relu");
  model.conv("conv2", 4).add("bn2", "batch_norm2d");
  model.add("sum", "add", {}, {"bn2", "relu0"}).add("relu2", "relu");
  model.conv("conv3", 4).add("relu3", "relu");
  model.add("join", "concat", {}, {"relu3", "relu0"}).add("flat", "flatten");
  return model.linear("head", 3).finish();
}

ModelGraph skip_mlp(int width) {
  Builder model("skip_mlp", {5});
  model.linear("fc0", width).add("tanh0", "tanh").linear("fc1", width).add("tanh1", "tanh");
  return model.add("sum", "add", {}, {"tanh1", "tanh0"}).linear("head", 3).finish();
}

ModelGraph product() {
  Builder model("product", {1});
  model.graph().targets = {{"y", {{1}, DType::float32}}};
  for (const char* name : {"a", "b", "c"})
    model.add(name, "linear", {{"out_features", std::int64_t{1}}, {"bias", false}});
  return model.finish("mse");
}

ModelGraph regression() {
  Builder model("regression", {4});
  model.graph().targets = {{"y", {{2}, DType::float32}}};
  return model.linear("fc0", 6).add("tanh0", "tanh").linear("head", 2).finish("mse");
}

ModelGraph lora() {
  const auto block = [](const std::string& name, const std::string& input) {
    const auto linear = [&](const std::string& node, const std::string& from, int out, bool frozen) {
      return R"({ "name": ")" + node + R"(", "op": "linear", "inputs": [")" + from +
             R"("], "attributes": { "out_features": )" + std::to_string(out) +
             (frozen ? R"( }, "frozen": true },)" : R"(, "bias": false } },)");
    };
    return R"({ "name": ")" + name + R"(", "op": "graph", "inputs": [")" + input + R"("], "nodes": [)" +
           linear("q", input, 6, true) + linear("qa", input, 2, false) + linear("qb", "qa", 6, false) +
           R"({ "name": "query", "op": "add", "inputs": ["q", "qb"] },)" + linear("k", input, 6, true) +
           linear("v", input, 6, true) + linear("va", input, 2, false) + linear("vb", "va", 6, false) +
           R"({ "name": "value", "op": "add", "inputs": ["v", "vb"] },
              { "name": "mix", "op": "scaled_dot_product_attention", "inputs": ["query", "k", "value"] },)" +
           linear("out", "mix", 6, true) + R"({ "name": "res", "op": "add", "inputs": ["out", ")" + input +
           R"("] }], "outputs": ["res"] },)";
  };
  return parse_model(R"({ "format": "pp.model", "version": 1, "name": "lora",
      "inputs": [{ "name": "x", "shape": [4, 6] }], "targets": [{ "name": "y", "dtype": "int64", "shape": [] }],
      "layers": [
        { "name": "embed", "op": "linear", "inputs": ["x"], "attributes": { "out_features": 6 }, "frozen": true },
        { "name": "norm", "op": "layer_norm", "inputs": ["embed"], "frozen": true },)" +
                     block("b0", "norm") + block("b1", "b0") + R"(
        { "name": "flat", "op": "flatten", "inputs": ["b1"] },
        { "name": "head", "op": "linear", "inputs": ["flat"], "attributes": { "out_features": 3 }, "frozen": true } ],
      "outputs": ["head"], "loss": { "op": "cross_entropy", "inputs": ["head", "y"] } })");
}

ModelGraph frozen_embedding() {
  return parse_model(R"({ "format": "pp.model", "version": 1, "name": "tied",
      "inputs": [{ "name": "x", "dtype": "int64", "shape": [4] }],
      "targets": [{ "name": "y", "dtype": "int64", "shape": [4] }],
      "layers": [
        { "name": "emb", "op": "embedding", "inputs": ["x"],
          "attributes": { "num_embeddings": 11, "embedding_dim": 6 }, "frozen": true },
        { "name": "fc0", "op": "linear", "inputs": ["emb"], "attributes": { "out_features": 6 } },
        { "name": "tanh", "op": "tanh", "inputs": ["fc0"] },
        { "name": "norm", "op": "layer_norm", "inputs": ["tanh"] },
        { "name": "fc1", "op": "linear", "inputs": ["norm"], "attributes": { "out_features": 6 } },
        { "name": "head", "op": "linear", "inputs": ["fc1"],
          "attributes": { "out_features": 11, "bias": false }, "weights_of": "emb" } ],
      "outputs": ["head"], "loss": { "op": "cross_entropy", "inputs": ["head", "y"] } })");
}

ModelGraph cut_off() {
  ModelGraph model = mlp(3);
  Layer cut{"cut", "aten", {"tanh1"}, {}};
  cut.call = AtenCall{.target = "aten::detach",
                      .arguments = {{"self", {TensorArgument{}}}},
                      .parameters = {},
                      .buffers = {},
                      .constants = {},
                      .outputs = {{{{6}}}}};
  std::ranges::find(model.layers, "fc2", &Layer::name)->inputs = {"cut"};
  model.layers.insert(model.layers.begin() + 4, cut);
  model.layers.push_back({"aux", "linear", {"tanh1"}, {{"out_features", std::int64_t{2}}}});
  model.outputs.push_back("aux");
  return model;
}

}  // namespace pp::test
