#include "tests/librun/model_alone.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <algorithm>

#include "libprofile/core/file.h"
#include "libprofile/model/ops.h"
#include "librun/checkpoint/weights.h"

namespace pp::test {

using namespace pp;

namespace {

at::Tensor named(const NamedTensors& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensors::value_type::first)->second;
}

/// LibTorch chooses kernels by it, also where no graph is recorded.
at::Tensor leaf(const at::Tensor& weight) { return weight.detach().requires_grad_(); }

}  // namespace

ModelAlone::ModelAlone(const ModelGraph& graph, const NamedTensors& weights) : model_(resolve(graph)) {
  for (const ResolvedLayer& layer : model_.layers) {
    const int own = static_cast<int>(parameters_.size());
    parameters_.emplace_back();
    buffers_.emplace_back();
    for (std::size_t i = 0; i < layer.parameters.size(); ++i)
      parameters_.back().push_back(leaf(named(weights, parameter_name(model_, layer.weights_layer, i))));
    for (std::size_t i = 0; i < layer.buffers.size(); ++i)
      buffers_.back().push_back(named(weights, buffer_name(model_, own, i)));
  }
}

std::vector<at::Tensor> ModelAlone::forward(const NamedTensors& inputs, std::int64_t first,
                                            std::int64_t count) const {
  const at::NoGradGuard no_graph;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);
  std::vector<model::Tensors> made;
  const auto tensor = [&](const TensorSource& source) {
    if (source.kind == TensorSource::Kind::layer)
      return made[static_cast<std::size_t>(source.index)][static_cast<std::size_t>(source.output)];
    const auto& tensors = source.kind == TensorSource::Kind::input ? model_.graph.inputs : model_.graph.targets;
    return named(inputs, tensors[static_cast<std::size_t>(source.index)].name).narrow(0, first, count).clone();
  };
  for (std::size_t i = 0; i < model_.layers.size(); ++i) {
    model::LayerContext context;
    context.mode = model::Mode::evaluation;
    context.layer = static_cast<int>(i);
    context.generator = &generator;
    context.buffers = buffers_[i];
    std::vector<at::Tensor> in;
    for (const TensorSource& source : model_.layers[i].sources) in.push_back(tensor(source));
    made.push_back(model::bind_layer(model_, static_cast<int>(i)).forward(in, parameters_[i], context));
    for (at::Tensor& output : made.back()) output = output.contiguous();  // as between the layers of a stage
  }
  std::vector<at::Tensor> outputs;
  for (const TensorSource& source : model_.outputs) outputs.push_back(tensor(source));
  return outputs;
}

NamedTensors ModelAlone::outputs(const NamedTensors& inputs, std::int64_t rows) const {
  at::set_num_threads(1);
  const std::int64_t samples = inputs.front().second.size(0);
  std::vector<std::vector<at::Tensor>> parts(model_.outputs.size());
  for (std::int64_t first = 0; first < samples; first += rows) {
    const auto made = forward(inputs, first, std::min(rows, samples - first));
    for (std::size_t k = 0; k < made.size(); ++k) parts[k].push_back(made[k]);
  }
  NamedTensors all;
  for (std::size_t k = 0; k < parts.size(); ++k)
    all.emplace_back(model_.graph.outputs[k], at::cat(parts[k], 0));
  return all;
}

void write_tensors(const std::filesystem::path& path, const NamedTensors& tensors) {
  AtomicFile file(path);
  run::write_safetensors(run::stored(tensors), [&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace pp::test
