#include "tests/libprofile/model/harness.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "libprofile/core/model/model_traits.h"
#include "libprofile/device/process.h"

namespace pp::model::test {
namespace {

using Kind = TensorSource::Kind;
using SourceKey = std::tuple<Kind, int, int>;
SourceKey key_of(const TensorSource& source) { return {source.kind, source.index, source.output}; }

double weight_of(const Job& job, std::size_t m) {
  const std::int64_t total =
      std::accumulate(job.micro_batches.begin(), job.micro_batches.end(), std::int64_t{0});
  return static_cast<double>(job.micro_batches[m]) / static_cast<double>(total);
}

RandomKey key_of(const Job& job, std::size_t m) {
  RandomKey key = job.key;
  key.micro_batch = static_cast<std::int64_t>(m);
  return key;
}

at::Tensor source_tensor(const ResolvedModel& model, const std::vector<at::Tensor>& data,
                         const TensorSource& source) {
  const std::size_t offset = source.kind == Kind::target ? model.graph.inputs.size() : 0;
  return data[offset + static_cast<std::size_t>(source.index)];
}

std::vector<int> all_layers(const ResolvedModel& model) {
  std::vector<int> layers(model.layers.size());
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

using LayerOutputs = std::vector<Tensors>;

std::vector<at::Tensor> gather(const Job& job, const std::vector<at::Tensor>& data, const LayerOutputs& values,
                               const std::vector<TensorSource>& sources) {
  std::vector<at::Tensor> tensors;
  for (const TensorSource& source : sources) {
    tensors.push_back(
        source.kind == Kind::layer
            ? values[static_cast<std::size_t>(source.index)][static_cast<std::size_t>(source.output)]
            : source_tensor(*job.model, data, source));
  }
  return tensors;
}

/// All layers of one micro-batch in one graph.
LayerOutputs plain_layers(const Job& job, const Weights& weights, std::size_t m, at::Generator& generator,
                          std::vector<BatchStatistics>& statistics) {
  const ResolvedModel& model = *job.model;
  const std::vector<at::Tensor> data = data_of(job, m);
  LayerOutputs values;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    LayerContext context{.mode = Mode::training,
                         .key = key_of(job, m),
                         .layer = static_cast<int>(i),
                         .generator = &generator,
                         .buffers = {},
                         .statistics = &statistics};
    const std::vector<at::Tensor> inputs = gather(job, data, values, model.layers[i].sources);
    values.push_back(bind_layer(model, static_cast<int>(i)).forward(inputs, weights.layers[i], context));
  }
  return values;
}

/// The unweighted loss of one micro-batch.
at::Tensor plain_forward(const Job& job, const Weights& weights, std::size_t m, at::Generator& generator,
                         std::vector<BatchStatistics>& statistics) {
  const LayerOutputs values = plain_layers(job, weights, m, generator, statistics);
  const std::vector<at::Tensor> ends = gather(job, data_of(job, m), values, job.model->loss_sources);
  LayerContext context;
  return bind_loss(*job.model).forward(ends, {}, context)[0];
}

/// One stage of run_stages().
struct Stage {
  Segment segment;
  std::shared_ptr<const Weights> weights;
  Gradients gradients;
  std::vector<Pass> passes;
};

using Boundaries = std::map<SourceKey, at::Tensor>;
using ArrivedGradients = std::map<SourceKey, Tensors>;

void forward(const Job& job, std::vector<Stage>& stages, std::size_t m, at::Generator& generator,
             Outcome& outcome) {
  const std::vector<at::Tensor> data = data_of(job, m);
  Boundaries boundaries;
  for (Stage& stage : stages) {
    std::vector<at::Tensor> inputs;
    for (const TensorSource& source : stage.segment.inputs()) {
      inputs.push_back(source.kind == Kind::layer ? boundaries.at(key_of(source))
                                                  : source_tensor(*job.model, data, source));
    }
    Pass pass = stage.segment.forward(stage.weights, inputs,
                                      {.key = key_of(job, m), .generator = &generator, .buffers = {}});
    for (std::size_t k = 0; k < pass.outputs.size(); ++k) {
      boundaries[key_of(stage.segment.outputs()[k])] = std::move(pass.outputs[k]);
    }
    outcome.statistics.insert(outcome.statistics.end(), pass.statistics.begin(), pass.statistics.end());
    if (stage.segment.has_loss()) outcome.losses.push_back(pass.loss);
    stage.passes.push_back(std::move(pass));
  }
}

/// Later stages run first, so what arrives for one tensor is in descending stage order.
void backward(const Job& job, std::vector<Stage>& stages, std::size_t m, Halves halves) {
  ArrivedGradients arrived;
  for (std::size_t s = stages.size(); s-- > 0;) {
    Stage& stage = stages[s];
    std::vector<Tensors> output_gradients;
    for (const TensorSource& source : stage.segment.outputs())
      output_gradients.push_back(arrived[key_of(source)]);
    const Tensors input_gradients =
        halves == Halves::together
            ? stage.segment.backward(stage.passes[m], output_gradients, weight_of(job, m), stage.gradients)
            : stage.segment.input_gradient(stage.passes[m], output_gradients, weight_of(job, m));
    for (std::size_t i = 0; i < input_gradients.size(); ++i) {
      if (!stage.segment.input_needs_gradient(static_cast<int>(i))) continue;
      arrived[key_of(stage.segment.inputs()[i])].push_back(input_gradients[i]);
    }
  }
  if (halves == Halves::together) return;
  for (Stage& stage : stages) stage.segment.weight_gradient(stage.passes[m], stage.gradients);
}

/// Values for an integer tensor: what embeddings have rows for, at most 5, below every count of classes here.
std::int64_t rows_of(const Job& job, const TensorSource& source) {
  const std::int64_t limit = index_limit(*job.model, source);
  return limit == 0 ? job.most_rows : std::min(job.most_rows, limit);
}

std::string compare(const std::string& what, const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return what + ": only one is defined";
  if (!a.defined() || a.equal(b)) return "";
  return what + ": differs by up to " + std::to_string(a.sub(b).abs().max().item<double>());
}

}  // namespace

std::vector<at::Tensor> data_of(const Job& job, std::size_t index) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1000 + index);
  std::vector<at::Tensor> tensors;
  const auto draw = [&](const DataTensor& spec, const TensorSource& source) {
    std::vector<std::int64_t> sizes{job.micro_batches[index]};
    sizes.insert(sizes.end(), spec.type.shape.begin(), spec.type.shape.end());
    if (is_floating(spec.type.dtype)) {
      tensors.push_back(at::empty(sizes, at::kDouble).normal_(0, 1, generator).to(scalar_type(job.dtype)));
    } else {
      tensors.push_back(at::empty(sizes, at::kLong).random_(0, rows_of(job, source), generator));
    }
  };
  const ModelGraph& graph = job.model->graph;
  for (int i = 0; i < static_cast<int>(graph.inputs.size()); ++i)
    draw(graph.inputs[static_cast<std::size_t>(i)], {Kind::input, i});
  for (int i = 0; i < static_cast<int>(graph.targets.size()); ++i)
    draw(graph.targets[static_cast<std::size_t>(i)], {Kind::target, i});
  return tensors;
}

double initial_loss(const ModelGraph& graph) {
  const ResolvedModel model = resolve(graph);
  const Job job{.model = &model, .micro_batches = {4}, .most_rows = std::int64_t{1} << 40};
  return run_stages(job, cut_at(model, {})).losses.at(0).item<double>();
}

Outcome run_plain(const Job& job) {
  profile::enter_worker_thread(1);
  const Segment whole(*job.model, all_layers(*job.model), true);
  const std::shared_ptr<Weights> weights = whole.initial_weights(job.key.seed, job.dtype);
  std::vector<at::Tensor> leaves;
  std::map<const void*, std::size_t> seen;  // a shared parameter is one leaf
  for (const auto& layer : weights->layers) {
    for (const at::Tensor& leaf : layer) {
      if (seen.emplace(leaf.unsafeGetTensorImpl(), leaves.size()).second) leaves.push_back(leaf);
    }
  }
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  Outcome outcome;
  std::vector<at::Tensor> sums(leaves.size());
  for (std::size_t m = 0; m < job.micro_batches.size(); ++m) {
    const at::Tensor loss = plain_forward(job, *weights, m, generator, outcome.statistics);
    outcome.losses.push_back(loss.detach());
    const auto gradients = torch::autograd::grad({loss.mul(weight_of(job, m))}, leaves);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      sums[i] = m == 0 ? gradients[i].clone() : sums[i].add(gradients[i]);
    }
  }
  outcome.gradients = whole.empty_gradients().layers;
  for (std::size_t i = 0; i < outcome.gradients.size(); ++i) {
    for (std::size_t k = 0; k < outcome.gradients[i].size(); ++k) {
      outcome.gradients[i][k] = sums[seen.at(weights->layers[i][k].unsafeGetTensorImpl())];
    }
  }
  return outcome;
}

std::string wrong_shape(const Job& job) {
  const ResolvedModel& model = *job.model;
  const auto weights = Segment(model, all_layers(model), true).initial_weights(job.key.seed, job.dtype);
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  std::vector<BatchStatistics> statistics;
  const LayerOutputs outputs = plain_layers(job, *weights, 0, generator, statistics);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t k = 0; k < outputs[i].size(); ++k) {
      Shape expected = model.layers[i].outputs.at(k).shape;
      expected.insert(expected.begin(), job.micro_batches[0]);
      if (outputs[i][k].sizes() != at::IntArrayRef(expected)) return model.graph.layers[i].name;
    }
  }
  return "";
}

Outcome run_stages(const Job& job, const std::vector<std::vector<int>>& layers, Halves halves,
                   const std::vector<int>& recompute) {
  profile::enter_worker_thread(1);
  std::vector<Stage> stages;
  for (std::size_t s = 0; s < layers.size(); ++s) {
    std::vector<int> again;
    std::ranges::copy_if(layers[s], std::back_inserter(again),
                         [&](int layer) { return std::ranges::count(recompute, layer) > 0; });
    Segment segment(*job.model, layers[s], s + 1 == layers.size(), again, job.format);
    segment.use(job.kernels);
    auto weights = segment.initial_weights(job.key.seed, job.dtype);
    Gradients gradients = segment.empty_gradients();
    stages.push_back({std::move(segment), std::move(weights), std::move(gradients), {}});
  }
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  Outcome outcome;
  for (std::size_t m = 0; m < job.micro_batches.size(); ++m) forward(job, stages, m, generator, outcome);
  for (std::size_t m = 0; m < job.micro_batches.size(); ++m) backward(job, stages, m, halves);
  outcome.gradients.resize(job.model->layers.size());
  for (const Stage& stage : stages) {
    for (std::size_t i = 0; i < stage.gradients.layers.size(); ++i) {
      outcome.gradients[static_cast<std::size_t>(stage.segment.layers()[i])] = stage.gradients.layers[i];
    }
  }
  return outcome;
}

std::vector<std::vector<int>> cut_at(const ResolvedModel& model, const std::vector<int>& cuts) {
  std::vector<std::vector<int>> stages(1);
  std::size_t next = 0;
  for (const int layer : all_layers(model)) {
    if (next < cuts.size() && cuts[next] == layer) {
      stages.emplace_back();
      ++next;
    }
    stages.back().push_back(layer);
  }
  return stages;
}

std::string difference(const Outcome& a, const Outcome& b) {
  if (a.losses.size() != b.losses.size()) return "number of losses";
  for (std::size_t m = 0; m < a.losses.size(); ++m) {
    const std::string text = compare("loss " + std::to_string(m), a.losses[m], b.losses[m]);
    if (!text.empty()) return text;
  }
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    for (std::size_t k = 0; k < a.gradients[i].size(); ++k) {
      const std::string name = "gradient " + std::to_string(k) + " of layer " + std::to_string(i);
      const std::string text = compare(name, a.gradients[i][k], b.gradients[i][k]);
      if (!text.empty()) return text;
    }
  }
  if (a.statistics.size() != b.statistics.size()) return "number of batch statistics";
  for (std::size_t i = 0; i < a.statistics.size(); ++i) {
    const std::string text =
        compare("mean", a.statistics[i].mean, b.statistics[i].mean) +
        compare("inverse deviation", a.statistics[i].inverse_deviation, b.statistics[i].inverse_deviation);
    if (a.statistics[i].layer != b.statistics[i].layer || !text.empty()) return "batch statistics: " + text;
  }
  return "";
}

double largest_difference(const Outcome& a, const Outcome& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    for (std::size_t k = 0; k < a.gradients[i].size(); ++k) {
      largest = std::max(largest, a.gradients[i][k].sub(b.gradients[i][k]).abs().max().item<double>());
    }
  }
  return largest;
}

}  // namespace pp::model::test
