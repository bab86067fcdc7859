#include "tests/support/model_values.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <numeric>

#include "libprofile/model/segment.h"

namespace pp::test {

using namespace pp;

namespace {

void stop_dropout(std::vector<Layer>& layers) {
  for (Layer& layer : layers) {
    for (const char* name : {"p", "dropout"}) {
      if (layer.attributes.contains(name)) layer.attributes[name] = 0.0;
    }
    stop_dropout(layer.nodes);
  }
}

ModelGraph without_dropout(ModelGraph graph) {
  stop_dropout(graph.layers);
  return graph;
}

struct Whole {
  Whole(ModelGraph graph, DType dtype, const GivenTensors& given)
      : model(resolve(without_dropout(std::move(graph)))),
        segment(model, layers(), model.graph.loss.has_value()),
        weights(segment.initial_weights(1, dtype)),
        buffers(segment.initial_buffers(dtype)),
        type(model::scalar_type(dtype)) {
    const c10::AutoGradMode no_grad(false);
    for (int layer = 0; layer < model.layer_count(); ++layer) {
      const auto l = static_cast<std::size_t>(layer);
      for (std::size_t i = 0; i < weights->layers[l].size(); ++i)
        set(weights->layers[l][i], given, parameter_name(model, model.layers[l].weights_layer, i));
      for (std::size_t i = 0; i < buffers[l].size(); ++i)
        set(buffers[l][i], given, buffer_name(model, layer, i));
    }
    for (const TensorSource& source : segment.inputs()) {
      const bool input = source.kind == TensorSource::Kind::input;
      const auto& tensors = input ? model.graph.inputs : model.graph.targets;
      inputs.push_back(given.data(tensors[static_cast<std::size_t>(source.index)]));
    }
  }

  static void set(at::Tensor& tensor, const GivenTensors& given, const std::string& name) {
    tensor.copy_(given.weights(name, tensor.sizes().vec()));
  }
  std::vector<int> layers() const {
    std::vector<int> all(model.layers.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  model::PassContext context(model::Mode mode) const {
    return {.mode = mode, .key = {}, .buffers = buffers, .dtype = type};
  }

  ResolvedModel model;
  model::Segment segment;
  std::shared_ptr<model::Weights> weights;
  std::vector<std::vector<at::Tensor>> buffers;
  at::ScalarType type;
  std::vector<at::Tensor> inputs;
};

}  // namespace

ModelValues model_values(ModelGraph graph, DType dtype, const GivenTensors& given) {
  at::set_num_threads(1);  // tests run beside each other
  const Whole whole(std::move(graph), dtype, given);
  const model::Segment& segment = whole.segment;
  ModelValues values;
  values.outputs =
      std::move(segment.forward(whole.weights, whole.inputs, whole.context(model::Mode::evaluation)).outputs);
  model::Gradients gradients;
  const auto train = [&] {
    model::Pass pass = segment.forward(whole.weights, whole.inputs, whole.context(model::Mode::training));
    gradients = segment.empty_gradients();
    std::vector<model::Tensors> nothing(segment.outputs().size());
    segment.backward(pass, nothing, 1.0, gradients);
    return pass.loss;
  };
  values.loss = train();
  for (std::size_t l = 0; l < gradients.layers.size(); ++l) {
    for (std::size_t i = 0; i < gradients.layers[l].size(); ++i) {
      at::Tensor& sum = values.gradients[parameter_name(whole.model, whole.model.layers[l].weights_layer, i)];
      sum = sum.defined() ? sum.add(gradients.layers[l][i]) : gradients.layers[l][i];
    }
  }
  const c10::AutoGradMode no_grad(false);
  for (int step = 0; step < given.steps; ++step) {
    for (std::size_t l = 0; l < gradients.layers.size(); ++l) {
      for (std::size_t i = 0; i < gradients.layers[l].size(); ++i)
        whole.weights->layers[l][i].sub_(gradients.layers[l][i], given.rate);
    }
    values.steps.push_back(train().item<double>());
  }
  return values;
}

}  // namespace pp::test
