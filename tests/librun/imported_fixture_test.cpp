// Models that scripts/import-torch has written, with what PyTorch computes of them (tests/data/import).
#include <c10/core/GradMode.h>

#include <map>
#include <string>

#include "libprofile/core/file.h"
#include "libprofile/model/segment.h"
#include "librun/checkpoint/weights.h"
#include "tests/support/torch_test.h"

using namespace pp;

namespace {

using Tensors = std::map<std::string, at::Tensor>;

Tensors read(const std::string& name) {
  Tensors tensors;
  for (auto& [key, tensor] : run::read_weights(PP_TEST_DATA "/import/" + name)) tensors.emplace(key, tensor);
  return tensors;
}

/// PyTorch's values are without dropout.
void stop_dropout(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    for (const char* name : {"p", "dropout"}) {
      if (layer.attributes.contains(name)) layer.attributes[name] = 0.0;
    }
    stop_dropout(layer.nodes);
  }
}

struct Fixture {
  explicit Fixture(const std::string& name)
      : model(resolve(without_dropout(name))),
        golden(read(name + ".golden.safetensors")),
        segment(model, all_layers(), model.graph.loss.has_value()),
        weights(segment.initial_weights(1, DType::float32)),
        buffers(segment.initial_buffers(DType::float32)) {
    const Tensors stored = read(name + ".weights.safetensors");
    const c10::AutoGradMode no_grad(false);
    for (int layer = 0; layer < model.layer_count(); ++layer) {
      const auto l = static_cast<std::size_t>(layer);
      for (std::size_t i = 0; i < weights->layers[l].size(); ++i)
        weights->layers[l][i].copy_(stored.at(parameter_name(model, model.layers[l].weights_layer, i)));
      for (std::size_t i = 0; i < buffers[l].size(); ++i)
        buffers[l][i].copy_(stored.at(buffer_name(model, layer, i)));
    }
    for (const TensorSource& source : segment.inputs()) {
      const bool input = source.kind == TensorSource::Kind::input;
      const auto& data = input ? model.graph.inputs : model.graph.targets;
      inputs.push_back(golden.at(data[static_cast<std::size_t>(source.index)].name));
    }
  }

  static ModelGraph without_dropout(const std::string& name) {
    ModelGraph graph = parse_model(read_file(PP_TEST_DATA "/import/" + name + ".json"));
    stop_dropout(graph.layers);
    return graph;
  }
  std::vector<int> all_layers() const {
    std::vector<int> layers;
    for (int layer = 0; layer < model.layer_count(); ++layer) layers.push_back(layer);
    return layers;
  }

  ResolvedModel model;
  Tensors golden;
  model::Segment segment;
  std::shared_ptr<model::Weights> weights;
  std::vector<std::vector<at::Tensor>> buffers;
  std::vector<at::Tensor> inputs;
};

/// Relative to the largest value that is expected.
double difference(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  return found.sub(expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

}  // namespace

TEST_SUITE("librun/imported_fixture") {
  TEST_CASE("outputs, loss and gradients of imported models are PyTorch's") {
    for (const std::string name : {"attention", "attention-blocks", "residual", "windows"}) {
      CAPTURE(name);
      Fixture f(name);
      const model::Pass seen = f.segment.forward(
          f.weights, f.inputs, {.mode = model::Mode::evaluation, .key = {}, .buffers = f.buffers});
      CHECK(difference(seen.outputs[0], f.golden.at("output")) < 1e-5);

      model::Pass pass = f.segment.forward(f.weights, f.inputs, {.key = {}, .buffers = f.buffers});
      CHECK(difference(pass.loss, f.golden.at("loss")) < 1e-5);
      model::Gradients gradients = f.segment.empty_gradients();
      f.segment.backward(pass, std::vector<model::Tensors>(f.segment.outputs().size()), 1.0, gradients);
      std::map<std::string, at::Tensor> sums;
      for (std::size_t l = 0; l < gradients.layers.size(); ++l) {
        for (std::size_t i = 0; i < gradients.layers[l].size(); ++i) {
          at::Tensor& sum = sums[parameter_name(f.model, f.model.layers[l].weights_layer, i)];
          sum = sum.defined() ? sum.add(gradients.layers[l][i]) : gradients.layers[l][i];
        }
      }
      for (const auto& [key, expected] : f.golden) {
        if (!key.starts_with("gradient.")) continue;
        CAPTURE(key);
        const at::Tensor found = sums.at(key.substr(9));
        REQUIRE(found.defined());
        CHECK(difference(found, expected) < 1e-4);
      }
    }
  }
}
