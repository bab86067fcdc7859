#include "tests/librun/whole_model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <utility>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/parameters.h"
#include "librun/data/synthetic.h"

namespace pp::test {

using namespace pp;

std::unique_ptr<model::Optimizer> optimizer_of(const plan::Plan& plan, const run::RunOptions& options) {
  return std::make_unique<model::Optimizer>(plan.training.optimizer, options.optimizer, options.weight_decay);
}

namespace {

LayerTensors leaves_of(const LayerTensors& weights) {
  LayerTensors leaves(weights.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    for (const at::Tensor& w : weights[i]) leaves[i].push_back(w.detach().clone().requires_grad_());
  }
  return leaves;
}

std::vector<int> all_layers(const ResolvedModel& model) {
  std::vector<int> layers(static_cast<std::size_t>(model.layer_count()));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

}  // namespace

WholeModel::WholeModel(const plan::Plan& plan, const run::RunOptions& options)
    : plan_(plan),
      options_(options),
      resolved_(resolve(plan.model)),
      segment_(resolved_, all_layers(resolved_), /*with_loss=*/true),
      data_(run::make_synthetic(resolved_, options.synthetic_samples, options.seed, run::Subset::training,
                                plan.training.dtype)),
      generator_(at::make_generator<at::CPUGeneratorImpl>(0)) {}

LayerTensors WholeModel::initial_weights() const {
  LayerTensors weights(resolved_.layers.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const int owner = resolved_.layers[i].weights_layer;
    if (owner >= 0 && owner != static_cast<int>(i)) weights[i] = weights[static_cast<std::size_t>(owner)];
    for (std::size_t p = weights[i].size(); p < resolved_.layers[i].parameters.size(); ++p) {
      weights[i].push_back(model::initial_parameter(resolved_, static_cast<int>(i), static_cast<int>(p),
                                                    options_.seed, plan_.training.dtype));
    }
  }
  return weights;
}

LayerTensors WholeModel::initial_buffers() const {
  LayerTensors buffers(resolved_.layers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t b = 0; b < resolved_.layers[i].buffers.size(); ++b) {
      buffers[i].push_back(
          model::initial_buffer(resolved_, static_cast<int>(i), static_cast<int>(b), plan_.training.dtype));
    }
  }
  return buffers;
}

Gradient WholeModel::gradient(const LayerTensors& at_weights, std::span<const std::int64_t> samples,
                              double weight, model::RandomKey key, const LayerTensors* in_backward) {
  model::Gradients sums = no_gradients();
  Gradient result = add_gradient(sums, at_weights, samples, weight, key, in_backward);
  result.weights = summed(sums, at_weights);
  return result;
}

Gradient WholeModel::add_gradient(model::Gradients& sums, const LayerTensors& at_weights,
                                  std::span<const std::int64_t> samples, double weight, model::RandomKey key,
                                  const LayerTensors* in_backward) {
  const auto weights = std::make_shared<model::Weights>();
  weights->layers = leaves_of(at_weights);
  model::PassContext context;
  context.key = key;
  context.generator = &generator_;
  const LayerTensors buffers = initial_buffers();  // calls read theirs in training, nothing changes them
  context.buffers = buffers;
  context.dtype = model::scalar_type(plan_.training.dtype);
  if (options_.autocast) context.autocast = options_.autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
  model::Tensors inputs;
  for (const TensorSource& source : segment_.inputs()) inputs.push_back(data_.rows(source, samples));
  model::Pass pass = segment_.forward(weights, inputs, context);
  for (std::size_t i = 0; in_backward != nullptr && i < at_weights.size(); ++i) {
    for (std::size_t p = 0; p < at_weights[i].size(); ++p)
      weights->layers[i][p].variable_data().copy_((*in_backward)[i][p]);  // unseen by autograd
  }
  Gradient result;
  result.loss = pass.loss.item<double>();
  result.statistics = std::move(pass.statistics);
  std::vector<model::Tensors> nothing(segment_.outputs().size());
  segment_.backward(pass, nothing, weight, sums);
  return result;
}

Gradient WholeModel::plain_gradient(const LayerTensors& at_weights, std::span<const std::int64_t> samples,
                                    double weight, model::RandomKey key) {
  Gradient result;
  const LayerTensors leaves = leaves_of(at_weights);
  std::vector<model::Tensors> outputs(leaves.size());
  const LayerTensors buffers = initial_buffers();  // calls read theirs in training, nothing changes them
  const auto tensor = [&](const TensorSource& source) {
    if (source.kind == TensorSource::Kind::layer)
      return outputs[static_cast<std::size_t>(source.index)][static_cast<std::size_t>(source.output)];
    return data_.rows(source, samples);
  };
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    model::LayerContext context;
    context.key = key;
    context.layer = static_cast<int>(i);
    context.generator = &generator_;
    context.statistics = &result.statistics;
    std::vector<at::Tensor> inputs;
    for (const TensorSource& source : resolved_.layers[i].sources) inputs.push_back(tensor(source));
    context.buffers = buffers[i];
    context.dtype = model::scalar_type(plan_.training.dtype);
    outputs[i] = model::bind_layer(resolved_, static_cast<int>(i)).forward(inputs, leaves[i], context);
  }
  std::vector<at::Tensor> ends;
  for (const TensorSource& source : resolved_.loss_sources) ends.push_back(tensor(source));
  model::LayerContext context;
  const at::Tensor loss = model::bind_loss(resolved_).forward(ends, {}, context)[0];
  result.loss = loss.item<double>();
  loss.mul(weight).backward();
  for (const auto& layer : leaves) {
    auto& gradients = result.weights.emplace_back();
    for (const at::Tensor& leaf : layer)
      gradients.push_back(leaf.grad().defined() ? leaf.grad()
                                                : at::zeros_like(leaf));  // the loss does not see it
  }
  return result;
}

NamedTensors WholeModel::named(const LayerTensors& weights, const LayerTensors& buffers) const {
  NamedTensors all;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const ResolvedLayer& layer = resolved_.layers[i];
    const bool owner = layer.weights_layer == static_cast<int>(i);
    for (std::size_t p = 0; owner && p < weights[i].size(); ++p)
      all.emplace_back(parameter_name(resolved_, static_cast<int>(i), p), weights[i][p]);
    for (std::size_t b = 0; b < buffers[i].size(); ++b)
      all.emplace_back(buffer_name(resolved_, static_cast<int>(i), b), buffers[i][b]);
  }
  return all;
}

std::vector<at::Tensor> flat(const LayerTensors& layers, int first, int last) {
  std::vector<at::Tensor> all;
  const std::size_t end = last < 0 ? layers.size() : static_cast<std::size_t>(last);
  for (std::size_t i = static_cast<std::size_t>(first); i < end; ++i)
    all.insert(all.end(), layers[i].begin(), layers[i].end());
  return all;
}

LayerTensors summed(const model::Gradients& sums, const LayerTensors& weights) {
  LayerTensors all(weights.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t p = 0; p < weights[i].size(); ++p) {
      const at::Tensor& sum = sums.layers[i][p];
      all[i].push_back(sum.defined() ? sum : at::zeros_like(weights[i][p]));
    }
  }
  return all;
}

LayerTensors clone(const LayerTensors& layers) {
  LayerTensors copy;
  for (const auto& layer : layers) {
    auto& tensors = copy.emplace_back();
    for (const at::Tensor& tensor : layer) tensors.push_back(tensor.detach().clone());
  }
  return copy;
}

void add(std::vector<at::Tensor>& sum, const std::vector<at::Tensor>& part) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (i == sum.size()) {
      sum.push_back(part[i].clone());
    } else {
      sum[i].add_(part[i]);
    }
  }
}

run::EpochShape shape_of(const plan::Plan& plan, const run::RunOptions& options, std::int64_t samples) {
  return run::epoch_shape({.samples = samples,
                           .mini_batch = plan.training.mini_batch,
                           .micro_batches = plan.training.micro_batches,
                           .drop_last = options.drop_last,
                           .source = "test"});
}

std::vector<int> offsets_of(int mini_batch, int micro_batches) {
  std::vector<int> offsets{0};
  for (int m = 0; m < micro_batches; ++m)
    offsets.push_back(offsets.back() + (mini_batch + micro_batches - 1 - m) / micro_batches);
  return offsets;
}

}  // namespace pp::test
