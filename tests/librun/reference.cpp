#include "tests/librun/reference.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "libprofile/core/op_table.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/parameters.h"
#include "libprofile/model/segment.h"
#include "librun/checkpoint/weights.h"
#include "librun/data/order.h"
#include "librun/data/synthetic.h"
#include "tests/librun/folder.h"

namespace test {

namespace {

using namespace pp;

std::unique_ptr<model::Optimizer> optimizer_of(const plan::Plan& plan, const run::RunOptions& options) {
  if (plan.training.optimizer == plan::OptimizerName::adamw) {
    return model::make_adamw({options.beta1, options.beta2, options.epsilon, options.weight_decay});
  }
  model::SgdOptions sgd;
  sgd.momentum = options.momentum;
  sgd.weight_decay = options.weight_decay;
  return model::make_sgd(sgd);
}

using LayerTensors = std::vector<std::vector<at::Tensor>>;  // per layer

struct Gradient {
  double loss = 0;
  LayerTensors weights;
  std::vector<model::BatchStatistics> statistics;
};

// The whole model in one graph.
class WholeModel {
 public:
  WholeModel(const plan::Plan& plan, const run::RunOptions& options)
      : plan_(plan),
        options_(options),
        resolved_(resolve(plan.model)),
        data_(run::make_synthetic(resolved_, options.synthetic_samples, options.seed, run::Subset::training,
                                  plan.training.dtype)),
        generator_(at::make_generator<at::CPUGeneratorImpl>(0)) {}

  const ResolvedModel& resolved() const { return resolved_; }
  std::int64_t samples() const { return data_.samples; }

  LayerTensors initial_weights() const {
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
  LayerTensors initial_buffers() const {
    LayerTensors buffers(resolved_.layers.size());
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      for (std::size_t b = 0; b < resolved_.layers[i].buffers.size(); ++b) {
        buffers[i].push_back(
            model::initial_buffer(resolved_, static_cast<int>(i), static_cast<int>(b), plan_.training.dtype));
      }
    }
    return buffers;
  }

  // Gradient of weight * loss at the given weights; mean loss unweighted.
  Gradient gradient(const LayerTensors& at_weights, std::span<const std::int64_t> samples, double weight,
                    model::RandomKey key) {
    Gradient result;
    LayerTensors leaves(at_weights.size());
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      for (const at::Tensor& w : at_weights[i]) leaves[i].push_back(w.detach().clone().requires_grad_());
    }
    std::vector<std::vector<at::Tensor>> outputs(leaves.size());
    const auto tensor = [&](const TensorSource& source) {
      if (source.kind == TensorSource::Kind::layer)
        return outputs[static_cast<std::size_t>(source.index)][static_cast<std::size_t>(source.output)];
      return run::cut(data_, source, samples);
    };
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      model::LayerContext context;
      context.key = key;
      context.layer = static_cast<int>(i);
      context.generator = &generator_;
      context.statistics = &result.statistics;
      std::vector<at::Tensor> inputs;
      for (const TensorSource& source : resolved_.layers[i].sources) inputs.push_back(tensor(source));
      const Layer& layer = resolved_.graph.layers[i];
      outputs[i] = model::find_forward(layer.op)(layer.attributes, inputs, leaves[i], context);
    }
    const LossSpec& spec = *resolved_.graph.loss;
    const at::Tensor loss = model::find_loss_forward(spec.op)(
        spec.attributes, tensor(resolved_.loss_sources[0]), tensor(resolved_.loss_sources[1]));
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

  NamedTensors named(const LayerTensors& weights, const LayerTensors& buffers) const {
    NamedTensors all;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const ResolvedLayer& layer = resolved_.layers[i];
      const std::string prefix = resolved_.graph.layers[i].name + ".";
      const bool owner = layer.weights_layer == static_cast<int>(i);
      for (std::size_t p = 0; owner && p < weights[i].size(); ++p)
        all.emplace_back(prefix + layer.parameters[p].name, weights[i][p]);
      for (std::size_t b = 0; b < buffers[i].size(); ++b)
        all.emplace_back(prefix + layer.buffers[b].name, buffers[i][b]);
    }
    return all;
  }

 private:
  const plan::Plan& plan_;
  const run::RunOptions& options_;
  ResolvedModel resolved_;
  run::Dataset data_;
  at::Generator generator_;
};

std::vector<at::Tensor> flat(const LayerTensors& layers, int first = 0, int last = -1) {
  std::vector<at::Tensor> all;
  const std::size_t end = last < 0 ? layers.size() : static_cast<std::size_t>(last);
  for (std::size_t i = static_cast<std::size_t>(first); i < end; ++i)
    all.insert(all.end(), layers[i].begin(), layers[i].end());
  return all;
}

// Of the layers that own their weights; the others' come to their owners first, in ascending layer order.
std::vector<at::Tensor> gathered(const ResolvedModel& model, LayerTensors sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto owner = static_cast<std::size_t>(model.layers[i].weights_layer);
    if (sums[i].empty() || owner == i) continue;
    for (std::size_t p = 0; p < sums[i].size(); ++p) sums[owner][p].add_(sums[i][p]);
    sums[i].clear();
  }
  return flat(sums);
}

std::vector<at::Tensor> owned(const ResolvedModel& model, LayerTensors weights) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (model.layers[i].weights_layer != static_cast<int>(i)) weights[i].clear();
  }
  return flat(weights);
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

// One stage of the recursion.
struct DelayedStage {
  int first = 0, last = 0;  // layers
  int replicas = 1, warm = 0;
  std::vector<LayerTensors> versions;  // of this epoch, whole-model tensors of which only [first, last) count
  std::unique_ptr<model::Optimizer> optimizer;
  std::vector<at::Tensor> round;  // mean over the samples of the replicas
};

std::vector<DelayedStage> delayed_stages(const plan::Plan& plan, const run::RunOptions& options) {
  std::vector<DelayedStage> stages(plan.stages.size());
  int layer = 0, workers = static_cast<int>(plan.workers.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    stages[s].first = layer;
    stages[s].last = layer += static_cast<int>(plan.stages[s].layers.size());
    stages[s].replicas = static_cast<int>(plan.stages[s].workers.size());
    stages[s].warm = (workers - 1) / stages[s].replicas;  // floor((R - 1 - sum of earlier replicas) / r_s)
    workers -= stages[s].replicas;
    stages[s].optimizer = optimizer_of(plan, options);
  }
  return stages;
}

// Samples of mini-batch j over those of the round of replicas that it belongs to.
double share(const DelayedStage& stage, const run::EpochShape& shape, int j) {
  double all = 0;
  for (int i = 0; i < stage.replicas; ++i) all += shape.size(j / stage.replicas * stage.replicas + i);
  return shape.size(j) / all;
}

std::vector<at::Tensor> scaled(const std::vector<at::Tensor>& tensors, double factor) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.mul(factor));
  return all;
}

void delayed_update(DelayedStage& stage, double learning_rate) {
  LayerTensors next = clone(stage.versions.back());
  stage.optimizer->step(flat(next, stage.first, stage.last), stage.round, learning_rate);
  stage.versions.push_back(std::move(next));
  stage.round.clear();
}

// What the programs say of one stage: the version that each micro-batch uses, and the micro-batches of each
// update.
struct StreamStage {
  std::map<int, int> version_of;         // by micro-batch
  std::vector<std::vector<int>> rounds;  // by update
};

std::vector<StreamStage> stream_stages(const plan::Plan& plan, int count) {
  std::vector<StreamStage> stages(plan.stages.size());
  for (const plan::Worker& worker : plan.workers) {
    std::map<StageId, std::size_t> updates;
    for (const plan::Op& op : plan::expand(*worker.program.stream, count)) {
      StreamStage& stage = stages[index(op.stage)];
      const std::size_t update = updates[op.stage];
      if (op.kind == plan::OpKind::forward) stage.version_of[op.micro_batch] = static_cast<int>(update);
      if (op.kind == plan::OpKind::update) ++updates[op.stage];
      if (!completes_backward(op.kind)) continue;
      if (stage.rounds.size() <= update) stage.rounds.resize(update + 1);
      stage.rounds[update].push_back(op.micro_batch);
    }
  }
  return stages;
}

// Versions and gradients, each computed when it is first asked for: a gradient needs versions, a version the
// gradients of its round and the version before it.
class StreamRecursion {
 public:
  StreamRecursion(const plan::Plan& plan, const run::RunOptions& options)
      : options_(options),
        model_(plan, options),
        shape_(shape_of(plan, options, model_.samples())),
        order_(run::epoch_order(model_.samples(), options.seed, 0, options.shuffle)),
        stages_(delayed_stages(plan, options)),
        programs_(stream_stages(plan, static_cast<int>(shape_.count))) {
    for (DelayedStage& stage : stages_) stage.versions = {model_.initial_weights()};
  }

  Trained train() {
    Trained result;
    for (int j = 0; j < shape_.count; ++j) result.losses.push_back(gradient(j).loss);
    LayerTensors newest = model_.initial_weights();
    for (std::size_t s = 0; s < stages_.size(); ++s) copy_stage(s, programs_[s].rounds.size(), newest);
    result.tensors = model_.named(newest, model_.initial_buffers());
    return result;
  }

 private:
  void copy_stage(std::size_t s, std::size_t number, LayerTensors& weights) {
    const LayerTensors& from = version(s, number);
    for (auto l = static_cast<std::size_t>(stages_[s].first); l < static_cast<std::size_t>(stages_[s].last);
         ++l)
      weights[l] = from[l];
  }

  const LayerTensors& version(std::size_t s, std::size_t number) {
    DelayedStage& stage = stages_[s];
    while (stage.versions.size() <= number) {
      const std::vector<int>& round = programs_[s].rounds[stage.versions.size() - 1];
      int samples = 0;
      for (const int j : round) samples += shape_.size(j);
      std::vector<at::Tensor> sum;
      for (const int j : round) {
        std::vector<at::Tensor> part = flat(gradient(j).weights, stage.first, stage.last);
        for (at::Tensor& tensor : part) tensor = tensor.mul(static_cast<double>(shape_.size(j)) / samples);
        add(sum, part);
      }
      LayerTensors next = clone(stage.versions.back());
      stage.optimizer->step(flat(next, stage.first, stage.last), sum, options_.learning_rate);
      stage.versions.push_back(std::move(next));
    }
    return stage.versions[number];
  }

  const Gradient& gradient(int j) {
    const auto known = gradients_.find(j);
    if (known != gradients_.end()) return known->second;
    LayerTensors used = model_.initial_weights();
    for (std::size_t s = 0; s < stages_.size(); ++s)
      copy_stage(s, static_cast<std::size_t>(programs_[s].version_of.at(j)), used);
    const auto samples = std::span(order_).subspan(static_cast<std::size_t>(shape_.first(j)),
                                                   static_cast<std::size_t>(shape_.size(j)));
    return gradients_.emplace(j, model_.gradient(used, samples, 1.0, {options_.seed, j, 0})).first->second;
  }

  const run::RunOptions& options_;
  WholeModel model_;
  run::EpochShape shape_;
  std::vector<std::int64_t> order_;
  std::vector<DelayedStage> stages_;
  std::vector<StreamStage> programs_;
  std::map<int, Gradient> gradients_;
};

// First samples of the micro-batches of a mini-batch, and its end: the first N mod M have one more.
std::vector<int> offsets_of(int mini_batch, int micro_batches) {
  std::vector<int> offsets{0};
  for (int m = 0; m < micro_batches; ++m)
    offsets.push_back(offsets.back() + (mini_batch + micro_batches - 1 - m) / micro_batches);
  return offsets;
}

}  // namespace

Trained train_alone(const plan::Plan& plan, const run::RunOptions& options, Order order_of_sum) {
  at::set_num_threads(1);
  WholeModel model(plan, options);
  Trained result;
  LayerTensors weights = model.initial_weights(), buffers = model.initial_buffers();
  const auto optimizer = optimizer_of(plan, options);
  const run::EpochShape shape = shape_of(plan, options, model.samples());
  const std::int64_t total = options.steps.value_or(shape.count * options.epochs.value_or(1));
  for (std::int64_t step = 0; step < total; ++step) {
    const auto order =
        run::epoch_order(model.samples(), options.seed, static_cast<int>(step / shape.count), options.shuffle);
    const std::int64_t batch = step % shape.count;
    const int size = shape.size(batch);
    const auto offsets = offsets_of(size, plan.training.micro_batches);
    LayerTensors sums(weights.size());
    std::map<int, std::vector<model::BatchStatistics>> statistics;  // by layer
    double loss = 0;
    const int micro_batches = plan.training.micro_batches;
    std::vector<Gradient> parts;
    for (int m = 0; m < micro_batches; ++m) {
      const auto begin = static_cast<std::size_t>(shape.first(batch) + offsets[static_cast<std::size_t>(m)]);
      const auto count = static_cast<std::size_t>(offsets[static_cast<std::size_t>(m) + 1] -
                                                  offsets[static_cast<std::size_t>(m)]);
      parts.push_back(model.gradient(weights, std::span(order).subspan(begin, count),
                                     static_cast<double>(count) / size, {options.seed, step, m}));
      for (auto& entry : parts.back().statistics) statistics[entry.layer].push_back(entry);
      loss += parts.back().loss * static_cast<double>(count) / size;
    }
    if (order_of_sum == Order::descending) std::ranges::reverse(parts);
    for (const Gradient& part : parts) {
      for (std::size_t i = 0; i < sums.size(); ++i) add(sums[i], part.weights[i]);
    }
    optimizer->step(owned(model.resolved(), weights), gathered(model.resolved(), std::move(sums)),
                    options.learning_rate);
    for (auto& [layer, entries] : statistics) {
      const auto i = static_cast<std::size_t>(layer);
      model::commit_statistics(entries, number(model.resolved().graph.layers[i].attributes, "momentum"),
                               buffers[i]);
    }
    result.losses.push_back(loss);
  }
  result.tensors = model.named(weights, buffers);
  return result;
}

Trained train_delayed(const plan::Plan& plan, const run::RunOptions& options) {
  at::set_num_threads(1);
  WholeModel model(plan, options);
  Trained result;
  std::vector<DelayedStage> stages = delayed_stages(plan, options);
  const run::EpochShape shape = shape_of(plan, options, model.samples());
  LayerTensors newest = model.initial_weights();
  for (int epoch = 0; epoch < options.epochs.value_or(1); ++epoch) {
    for (DelayedStage& stage : stages)
      stage.versions = {newest};  // the stash is refilled from the current weights
    const auto order = run::epoch_order(model.samples(), options.seed, epoch, options.shuffle);
    for (int j = 0; j < shape.count; ++j) {
      LayerTensors used(newest.size());
      for (const DelayedStage& stage : stages) {
        const auto version = static_cast<std::size_t>(std::max(0, j / stage.replicas - stage.warm));
        for (int l = stage.first; l < stage.last; ++l)
          used[static_cast<std::size_t>(l)] = stage.versions[version][static_cast<std::size_t>(l)];
      }
      const auto samples = std::span(order).subspan(static_cast<std::size_t>(shape.first(j)),
                                                    static_cast<std::size_t>(shape.size(j)));
      const Gradient part = model.gradient(used, samples, 1.0, {options.seed, epoch * shape.count + j, 0});
      result.losses.push_back(part.loss);
      for (DelayedStage& stage : stages) {
        add(stage.round, scaled(flat(part.weights, stage.first, stage.last), share(stage, shape, j)));
        if ((j + 1) % stage.replicas == 0) delayed_update(stage, options.learning_rate);
      }
    }
    for (const DelayedStage& stage : stages) {
      for (int l = stage.first; l < stage.last; ++l)
        newest[static_cast<std::size_t>(l)] = stage.versions.back()[static_cast<std::size_t>(l)];
    }
  }
  result.tensors = model.named(newest, model.initial_buffers());
  return result;
}

Trained train_stream(const plan::Plan& plan, const run::RunOptions& options) {
  at::set_num_threads(1);
  return StreamRecursion(plan, options).train();
}

Run run_plan(const plan::Plan& plan, run::RunOptions options) {
  const TestFolder folder;
  options.save_weights = folder.path() / "weights.safetensors";
  SilentObserver observer;
  Run result;
  result.report = run::run(plan, options, observer);
  result.tensors = run::read_weights(options.save_weights);
  return result;
}

std::string first_difference(const NamedTensors& expected, const NamedTensors& found) {
  if (expected.size() != found.size())
    return std::to_string(found.size()) + " tensors instead of " + std::to_string(expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].first != found[i].first) return found[i].first + " instead of " + expected[i].first;
    if (expected[i].second.equal(found[i].second)) continue;
    return expected[i].first + " differs by " +
           std::to_string(expected[i].second.sub(found[i].second).abs().max().item<double>());
  }
  return "";
}

double largest_difference(const NamedTensors& expected, const NamedTensors& found) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, expected[i].second.sub(found[i].second).abs().max().item<double>());
  }
  return largest;
}

}  // namespace test
