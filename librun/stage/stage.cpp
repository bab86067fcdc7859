#include "librun/stage/stage.h"

#include <ATen/ops/zeros_like.h>

#include <set>

#include "libprofile/core/op_table.h"
#include "libprofile/model/gradient_sum.h"

namespace pp::run {

namespace {

Bytes bytes_of(const at::Tensor& tensor) {
  return Bytes(tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0);
}

}  // namespace

Stage::Stage(const ResolvedModel& model, StageOptions options)
    : model_(model),
      segment_(model, std::move(options.layers), options.with_loss, options.recompute),
      optimizer_(std::move(options.optimizer)),
      newest_(segment_.initial_weights(options.seed, options.dtype, options.device)),
      buffers_(segment_.initial_buffers(options.dtype, options.device)),
      parameters_(distinct_parameters()),
      gradients_(segment_.empty_gradients()) {
  for (const Parameter& parameter : parameters_) weight_bytes_ += bytes_of(newest(parameter));
}

std::vector<Stage::Parameter> Stage::distinct_parameters() const {
  std::vector<Parameter> parameters;
  std::map<std::pair<int, std::size_t>, std::size_t> known;  // (layer that owns it, index) -> position
  for (std::size_t layer = 0; layer < newest_->layers.size(); ++layer) {
    const auto model_layer = static_cast<std::size_t>(segment_.layers()[layer]);
    for (std::size_t index = 0; index < newest_->layers[layer].size(); ++index) {
      const auto [found, added] =
          known.try_emplace({model_.layers[model_layer].weights_layer, index}, parameters.size());
      if (added) parameters.emplace_back();
      parameters[found->second].uses.push_back({layer, index});
    }
  }
  return parameters;
}

const at::Tensor& Stage::newest(const Parameter& parameter) const {
  return newest_->layers[parameter.uses.front().layer][parameter.uses.front().index];
}

std::vector<at::Tensor> Stage::forward(int micro_batch, std::span<const at::Tensor> inputs,
                                       const model::RandomKey& key, at::Generator& generator, Keep keep) {
  model::PassContext context;
  context.key = key;
  context.generator = &generator;
  if (keep == Keep::inputs) context.record = model::Record::none;
  Flight flight{segment_.forward(newest_, inputs, context), newest_->version};
  if (keep == Keep::inputs) {
    flight.weights = newest_;
    flight.inputs.assign(inputs.begin(), inputs.end());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (segment_.inputs()[i].kind != TensorSource::Kind::layer) flight.inputs[i].reset();
    }
  }
  std::vector<at::Tensor> outputs = std::exchange(flight.pass.outputs, {});
  flights_.insert_or_assign(micro_batch, std::move(flight));
  return outputs;
}

void Stage::recompute(int micro_batch, std::span<const at::Tensor> inputs, const model::RandomKey& key,
                      at::Generator& generator) {
  Flight& flight = flights_.at(micro_batch);
  std::vector<at::Tensor> all = std::exchange(flight.inputs, {});
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) all[i] = inputs[i];
  }
  model::PassContext context;
  context.key = key;
  context.generator = &generator;
  model::Pass again = segment_.forward(std::exchange(flight.weights, nullptr), all, context);
  again.outputs.clear();
  again.loss = flight.pass.loss;
  again.statistics = std::move(flight.pass.statistics);
  flight.pass = std::move(again);
}

double Stage::loss(int micro_batch) const { return flights_.at(micro_batch).pass.loss.item<double>(); }

std::vector<at::Tensor> Stage::backward(int micro_batch,
                                        std::span<const std::vector<at::Tensor>> output_gradients,
                                        double weight) {
  std::vector<at::Tensor> result =
      segment_.backward(flights_.at(micro_batch).pass, output_gradients, weight, gradients_);
  retire(micro_batch);
  return result;
}

std::vector<at::Tensor> Stage::input_gradient(int micro_batch,
                                              std::span<const std::vector<at::Tensor>> output_gradients,
                                              double weight) {
  return segment_.input_gradient(flights_.at(micro_batch).pass, output_gradients, weight);
}

void Stage::weight_gradient(int micro_batch) {
  segment_.weight_gradient(flights_.at(micro_batch).pass, gradients_);
  retire(micro_batch);
}

void Stage::retire(int micro_batch) {
  statistics_[micro_batch] = std::move(flights_.at(micro_batch).pass.statistics);
  flights_.erase(micro_batch);
}

StepGradients Stage::take_gradients() {
  StepGradients step;
  for (const Parameter& parameter : parameters_) {
    for (const Parameter::Use& use : parameter.uses)
      step.uses.push_back(gradients_.layers[use.layer][use.index]);
  }
  step.statistics = std::exchange(statistics_, {});
  gradients_ = segment_.empty_gradients();
  return step;
}

template <class Visit>
void Stage::for_each_use(int owner, Visit&& visit) const {
  std::size_t entry = 0;
  for (const Parameter& parameter : parameters_) {
    for (const Parameter::Use& use : parameter.uses) {
      const auto layer = static_cast<std::size_t>(segment_.layers()[use.layer]);
      if (model_.layers[layer].weights_layer == owner) visit(use, entry);
      ++entry;
    }
  }
}

UseGradients Stage::tied_gradients(const StepGradients& gradients, int owner) const {
  UseGradients tied;
  for_each_use(owner, [&](const Parameter::Use& use, std::size_t entry) {
    tied[{segment_.layers()[use.layer], use.index}] = gradients.uses[entry];
  });
  return tied;
}

void Stage::set_tied_gradients(StepGradients& gradients, int owner, const TiedGradients& sums) const {
  TiedGradients left = sums;  // the first use of a parameter gets its sum
  for_each_use(owner, [&](const Parameter::Use& use, std::size_t entry) {
    gradients.uses[entry] = std::exchange(left[use.index], at::Tensor());
  });
}

void Stage::replace_newest() {
  auto next = std::make_shared<model::Weights>();
  next->version = newest_->version;
  for (const auto& layer : newest_->layers) next->layers.emplace_back(layer.size());
  for (const Parameter& parameter : parameters_) {
    const at::Tensor copy = newest(parameter).detach().clone().requires_grad_();
    for (const Parameter::Use& use : parameter.uses) next->layers[use.layer][use.index] = copy;
  }
  newest_ = std::move(next);
}

void Stage::update(StepGradients gradients, double learning_rate) {
  if (newest_.use_count() > 1) replace_newest();
  std::vector<at::Tensor> weights, sums;
  auto use = gradients.uses.begin();
  for (const Parameter& parameter : parameters_) {
    model::detail::GradientSum sum;
    for (std::size_t i = 0; i < parameter.uses.size(); ++i, ++use) {
      if (use->defined()) sum.add(std::exchange(*use, at::Tensor()));
    }
    weights.push_back(newest(parameter));
    sums.push_back(sum.take());
    if (!sums.back().defined()) sums.back() = at::zeros_like(weights.back().detach());
  }
  if (!weights.empty()) optimizer_->step(weights, sums, learning_rate);
  ++newest_->version;
  commit(gradients.statistics);
}

void Stage::commit(const std::map<int, std::vector<model::BatchStatistics>>& statistics) {
  std::map<int, std::vector<model::BatchStatistics>> by_layer;
  for (const auto& [micro_batch, entries] : statistics) {
    for (const model::BatchStatistics& entry : entries) by_layer[entry.layer].push_back(entry);
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const int layer = segment_.layers()[i];
    const auto found = by_layer.find(layer);
    if (found == by_layer.end()) continue;
    const Attributes& attributes = model_.graph.layers[static_cast<std::size_t>(layer)].attributes;
    model::commit_statistics(found->second, pp::number(attributes, "momentum"), buffers_[i]);
  }
}

model::Pass Stage::evaluate(std::span<const at::Tensor> inputs, at::Generator& generator) const {
  model::PassContext context;
  context.mode = model::Mode::evaluation;
  context.generator = &generator;
  context.buffers = buffers_;
  return segment_.forward(newest_, inputs, context);
}

int Stage::version_count() const {
  std::set<int> versions{newest_->version};
  for (const auto& [micro_batch, flight] : flights_) versions.insert(flight.version);
  return static_cast<int>(versions.size());
}

StageBytes Stage::bytes() const {
  StageBytes bytes;
  bytes.weights = weight_bytes_;
  bytes.versions = weight_bytes_ * (version_count() - 1);
  for (const auto& layer : gradients_.layers) {
    for (const at::Tensor& gradient : layer) bytes.gradients += bytes_of(gradient);
  }
  for (const at::Tensor& state : optimizer_->state()) bytes.optimizer += bytes_of(state);
  return bytes;
}

std::vector<std::pair<int, Stage::NamedTensors>> Stage::named_tensors() const {
  std::vector<std::pair<int, NamedTensors>> all;
  for (std::size_t i = 0; i < newest_->layers.size(); ++i) {
    const int layer = segment_.layers()[i];
    const ResolvedLayer& resolved = model_.layers[static_cast<std::size_t>(layer)];
    const std::string prefix = model_.graph.layers[static_cast<std::size_t>(layer)].name + ".";
    NamedTensors tensors;
    for (std::size_t p = 0; resolved.weights_layer == layer && p < resolved.parameters.size(); ++p) {
      tensors.emplace_back(prefix + resolved.parameters[p].name, newest_->layers[i][p].detach());
    }
    for (std::size_t b = 0; b < buffers_[i].size(); ++b) {
      tensors.emplace_back(prefix + resolved.buffers[b].name, buffers_[i][b]);
    }
    all.emplace_back(layer, std::move(tensors));
  }
  return all;
}

}  // namespace pp::run
