#include "librun/stage/stage.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/stage/host_memory.h"

namespace pp::run {

namespace {

std::optional<at::ScalarType> scalar_type(std::optional<Autocast> autocast) {
  if (!autocast) return std::nullopt;
  return *autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
}

Bytes bytes_of(const at::Tensor& tensor) {
  return Bytes(tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0);
}

}  // namespace

Stage::Stage(const ResolvedModel& model, StageOptions options)
    : model_(model),
      segment_(model, std::move(options.layers), options.with_loss, options.recompute, options.format),
      optimizer_(std::move(options.optimizer)),
      autocast_(scalar_type(options.autocast)),
      dtype_(model::scalar_type(options.dtype)),
      layout_(model, segment_, options.dtype, options.device),
      versions_(layout_, *segment_.initial_weights(options.seed, options.dtype, options.device), options.policy,
                options.stages, options.index, options.per_update),
      buffers_(segment_.initial_buffers(options.dtype, options.device)),
      sums_(segment_.empty_gradients()) {
  segment_.use(std::move(options.kernels));
  if (options.recorded)
    recorded_.emplace(segment_, std::move(options.recorded->kinds), options.recorded->payer);
  for (const int layer : segment_.layers()) batch_norms_.push_back(batch_norms(model_, layer));
  if (layout_.parameters().empty() || !optimizer_) return;
  if (!options.rules.empty()) {
    std::vector<model::WeightRule> rules;
    for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
      const std::string name = name_of(parameter);
      rules.push_back({options.rules.rate_factor(name), options.rules.decays(name)});
    }
    optimizer_->set_rules(std::move(rules));
  }
  gradient_ = at::zeros({layout_.gradient_size()}, versions_.newest_flat().options());
  sums_.places = sums_.layers;
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    update_gradients_.push_back(place(parameter, parameter.uses.front()));
    for (const FlatLayout::Use& use : parameter.uses)
      sums_.places[use.layer][use.index] = place(parameter, use);
  }
}

model::PassContext Stage::training_context(const model::RandomKey& key, at::Generator& generator) const {
  model::PassContext context;
  context.key = key;
  context.generator = &generator;
  context.autocast = autocast_;
  context.buffers = buffers_;
  context.dtype = dtype_;
  return context;
}

void Stage::restart() {
  versions_.restart();
  shared_by_.reset();
}

void Stage::predict_for_forward(std::int64_t step, double learning_rate) {
  const std::span<const at::Tensor> predicted = versions_.predicted(), shared = versions_.shared();
  if (predicted.empty()) return;
  if (shared.empty() || std::exchange(shared_by_, step) != step) {
    optimizer_->predict(versions_.newest_parameters(), shared.empty() ? predicted : shared,
                        versions_.look_ahead().forward * learning_rate);
  }
  if (!shared.empty()) versions_.run_on_shared();
}

void Stage::predict_for_backward(double learning_rate) {
  const std::span<const at::Tensor> predicted = versions_.predicted();
  if (predicted.empty()) return;
  optimizer_->predict(versions_.newest_parameters(), predicted,
                      versions_.look_ahead().backward * learning_rate);
}

model::Tensors Stage::forward(int micro_batch, std::int64_t step, model::TensorSpan inputs,
                              const model::RandomKey& key, at::Generator& generator, Keep keep) {
  model::PassContext context = training_context(key, generator);
  if (keep == Keep::inputs) context.record = model::Record::none;
  std::shared_ptr<const model::Weights> weights = versions_.for_forward(step);
  RecordedPass* const recorded = recorded_ ? recorded_->take(weights, inputs, context) : nullptr;
  Flight flight{recorded != nullptr ? recorded->forward(inputs) : segment_.forward(weights, inputs, context),
                weights->version};
  flight.recorded = recorded;
  if (keep == Keep::inputs) {
    flight.weights = std::move(weights);
    flight.inputs.assign(inputs.begin(), inputs.end());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (segment_.inputs()[i].kind != TensorSource::Kind::layer) flight.inputs[i].reset();
    }
  }
  model::Tensors outputs = std::exchange(flight.pass.outputs, {});
  flights_.put(micro_batch, std::move(flight));
  return outputs;
}

void Stage::recompute(int micro_batch, model::TensorSpan inputs, const model::RandomKey& key,
                      at::Generator& generator) {
  Flight& flight = flights_.at(micro_batch);
  model::Tensors all = std::exchange(flight.inputs, {});
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) all[i] = inputs[i];
  }
  model::PassContext context = training_context(key, generator);
  model::Pass again = segment_.forward(std::exchange(flight.weights, nullptr), all, context);
  again.outputs.clear();
  again.loss = flight.pass.loss;
  again.statistics = std::move(flight.pass.statistics);
  flight.pass = std::move(again);
}

model::Tensors Stage::backward(int micro_batch, std::span<model::Tensors> output_gradients, double weight,
                               model::LayerObserver* observer) {
  Flight& flight = flights_.at(micro_batch);
  model::Tensors result = flight.recorded != nullptr
                              ? flight.recorded->backward(output_gradients, weight, sums_)
                              : segment_.backward(flight.pass, output_gradients, weight, sums_, observer);
  retire(micro_batch);
  return result;
}

model::Tensors Stage::input_gradient(int micro_batch, std::span<model::Tensors> output_gradients,
                                     double weight) {
  Flight& flight = flights_.at(micro_batch);
  if (flight.recorded != nullptr) return flight.recorded->input_gradient(output_gradients, weight);
  return segment_.input_gradient(flight.pass, output_gradients, weight);
}

void Stage::weight_gradient(int micro_batch, model::LayerObserver* observer) {
  Flight& flight = flights_.at(micro_batch);
  if (flight.recorded != nullptr) {
    flight.recorded->weight_gradient(sums_);
  } else {
    segment_.weight_gradient(flight.pass, sums_, observer);
  }
  retire(micro_batch);
}

void Stage::retire(int micro_batch) {
  std::vector<model::BatchStatistics>& mine = flights_.at(micro_batch).pass.statistics;
  for (model::BatchStatistics& layer : mine) layer.micro_batch = micro_batch;
  std::ranges::move(mine, std::back_inserter(statistics_));
  segment_.reuse(std::move(mine));
  forget(micro_batch);
}

void Stage::forget(int micro_batch) {
  if (RecordedPass* recorded = flights_.at(micro_batch).recorded) recorded_->give(recorded);
  flights_.erase(micro_batch);
}

void Stage::end_step() {
  if (recorded_) recorded_->end_step();
}

bool Stage::has_statistics() const {
  return std::ranges::any_of(buffers_, [](const auto& buffers) { return !buffers.empty(); });
}

at::Tensor Stage::complete_gradient() {
  return gradient_.defined() ? complete_gradient({0, 0, layout_.gradient_size()}) : gradient_;
}

at::Tensor Stage::complete_gradient(const FlatLayout::Bucket& bucket) {
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    for (const FlatLayout::Use& use : parameter.uses) {
      if (use.offset < bucket.begin || use.offset >= bucket.end || sum(use).defined()) continue;
      sum(use) = place(parameter, use);
      sum(use).zero_();
    }
  }
  return gradient_.narrow(0, bucket.begin, bucket.end - bucket.begin);
}

std::vector<FlatLayout::Bucket> Stage::buckets(Bytes least) const {
  if (!gradient_.defined()) return {};
  return layout_.buckets(least.value / static_cast<std::int64_t>(gradient_.element_size()));
}

template <class Visit>
void Stage::for_each_use(int owner, Visit&& visit) const {
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    for (const FlatLayout::Use& use : parameter.uses) {
      const auto layer = static_cast<std::size_t>(segment_.layers()[use.layer]);
      if (model_.layers[layer].weights_layer == owner) visit(parameter, use);
    }
  }
}

UseGradients Stage::tied_gradients(int owner) const {
  UseGradients tied;
  for_each_use(owner, [&](const FlatLayout::Parameter&, const FlatLayout::Use& use) {
    tied[{segment_.layers()[use.layer], use.index}] = sums_.layers[use.layer][use.index];
  });
  return tied;
}

// The first use of a parameter gets its sum, the others nothing.
void Stage::set_tied_gradients(int owner, const std::map<std::size_t, at::Tensor>& sums) {
  std::map<std::size_t, at::Tensor> left = sums;
  for_each_use(owner, [&](const FlatLayout::Parameter& parameter, const FlatLayout::Use& use) {
    const at::Tensor all = std::exchange(left[use.index], at::Tensor());
    sum(use).reset();
    if (all.defined()) sum(use) = place(parameter, use).copy_(all);
  });
}

// Into the place of the first use; only this place is updated.
void Stage::fold_uses() {
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    at::Tensor& first = sum(parameter.uses.front());
    for (std::size_t i = 1; i < parameter.uses.size(); ++i) {
      const at::Tensor other = std::exchange(sum(parameter.uses[i]), at::Tensor());
      if (!other.defined()) continue;
      if (first.defined()) {
        first.add_(other);
      } else {
        first = place(parameter, parameter.uses.front()).copy_(other);
      }
    }
    if (!first.defined()) first = place(parameter, parameter.uses.front()).zero_();
  }
}

std::vector<Stage::SquareNorm> Stage::square_norms() {
  fold_uses();
  std::vector<SquareNorm> norms;
  std::vector<at::Tensor> on_device;
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    const FlatLayout::Use& use = parameter.uses.front();
    const int layer = segment_.layers()[use.layer];
    if (model_.layers[static_cast<std::size_t>(layer)].weights_layer != layer) continue;  // a copy
    norms.push_back({layer, use.index, 0});
    on_device.push_back(at::linalg_vector_norm(sum(use), 2, at::OptionalIntArrayRef{}, false, at::kDouble));
  }
  if (norms.empty()) return norms;
  const at::Tensor all = at::stack(on_device).cpu();
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const double norm = all.const_data_ptr<double>()[i];
    norms[i].square = norm * norm;
  }
  return norms;
}

void Stage::scale_gradient(double factor) {
  fold_uses();
  if (const at::Tensor flat = update_gradient().flat; flat.defined()) flat.mul_(factor);
}

void Stage::update(std::int64_t step, double learning_rate) {
  fold_uses();
  const auto [weights, before] = versions_.begin_update(step);
  if (!weights.empty()) optimizer_->step(weights, update_gradients_, learning_rate, before);
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) sum(parameter.uses.front()).reset();
  commit_statistics();
  end_step();
}

FlatTensors Stage::update_gradient() {
  fold_uses();
  if (!gradient_.defined()) return {};
  return {gradient_.narrow(0, 0, layout_.weight_size()), update_gradients_};
}

FlatTensors Stage::parameters_of(at::Tensor flat) const {
  FlatTensors tensors{std::move(flat), {}};
  for (const FlatLayout::Parameter& parameter : layout_.parameters())
    tensors.parameters.push_back(FlatLayout::view(tensors.flat, parameter, parameter.offset()));
  return tensors;
}

void Stage::drop_update() {
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    for (const FlatLayout::Use& use : parameter.uses) sum(use).reset();
  }
  statistics_.clear();
  end_step();
}

void Stage::commit_statistics() {
  std::ranges::sort(statistics_, {}, [](const model::BatchStatistics& s) {
    return std::tuple(s.layer, s.buffer, s.micro_batch);
  });
  std::span<const model::BatchStatistics> left = statistics_;
  norm_statistics_.clear();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const int layer = segment_.layers()[i];
    for (const BatchNorm& norm : batch_norms_[i]) {
      const auto other = std::ranges::find_if(
          left, [&](const auto& s) { return s.layer != layer || s.buffer != norm.buffer; });
      const auto mine = left.first(static_cast<std::size_t>(other - left.begin()));
      norm_statistics_.push_back(
          {mine, norm, std::span(buffers_[i]).subspan(static_cast<std::size_t>(norm.buffer), 2)});
      left = left.subspan(mine.size());
    }
  }
  model::commit_statistics(norm_statistics_);
  statistics_.clear();
}

model::Pass Stage::evaluate(model::TensorSpan inputs, at::Generator& generator, const model::Piece* piece,
                            std::span<model::LayerCache> caches) const {
  model::PassContext context;
  context.piece = piece;
  context.caches = caches;
  context.mode = model::Mode::evaluation;
  context.autocast = autocast_;
  context.generator = &generator;
  context.buffers = buffers_;
  context.dtype = dtype_;
  return segment_.forward(versions_.newest_shared(), inputs, context);
}

void Stage::hold(Hold what) {
  hold_ = what;
  for (const at::Tensor& flat : {versions_.newest_flat(), versions_.frozen_flat()})
    set_memory(flat, what != Hold::nothing);
  for (const auto& layer : buffers_) {
    for (const at::Tensor& buffer : layer) set_memory(buffer, what != Hold::nothing);
  }
  set_memory(gradient_, what == Hold::training);
  if (!optimizer_) return;
  for (const model::OptimizerSlot& slot : optimizer_->state()) {
    for (const at::Tensor& tensor : slot.tensors) set_memory(tensor, what == Hold::training);
  }
}

std::vector<at::Tensor> Stage::swapped() const {
  std::vector<at::Tensor> tensors;
  if (hold_ == Hold::nothing) return tensors;
  for (const at::Tensor& flat : {versions_.newest_flat(), versions_.frozen_flat()}) {
    if (flat.defined()) tensors.push_back(flat);
  }
  for (const auto& layer : buffers_) tensors.insert(tensors.end(), layer.begin(), layer.end());
  if (hold_ == Hold::weights || !optimizer_) return tensors;
  for (const model::OptimizerSlot& slot : optimizer_->state())
    tensors.insert(tensors.end(), slot.tensors.begin(), slot.tensors.end());
  return tensors;
}

StageBytes Stage::bytes() const {
  StageBytes bytes;
  if (hold_ == Hold::nothing) return bytes;
  bytes.weights = versions_.bytes_of_one() + bytes_of(versions_.frozen_flat());
  bytes.versions = versions_.bytes_of_one() * (version_count() - 1);
  if (hold_ == Hold::weights) return bytes;
  bytes.gradients = bytes_of(gradient_);
  for (const model::OptimizerSlot& slot : optimizer_->state()) {
    for (const at::Tensor& tensor : slot.tensors) bytes.optimizer += bytes_of(tensor);
  }
  return bytes;
}

// A shared parameter has the name of the layer that owns it, which may be in another stage.
std::string Stage::name_of(const FlatLayout::Parameter& parameter) const {
  const FlatLayout::Use& use = parameter.uses.front();
  const auto layer = static_cast<std::size_t>(segment_.layers()[use.layer]);
  return parameter_name(model_, model_.layers[layer].weights_layer, use.index);
}

std::vector<Stage::LayerState> Stage::snapshot() const {
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.detach().to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true,
                              at::MemoryFormat::Contiguous);
  };
  std::vector<LayerState> layers;
  for (const int layer : segment_.layers()) layers.push_back({layer});
  const auto is_owner = [&](const LayerState& state) {  // else its parameters are copies
    return model_.layers[static_cast<std::size_t>(state.layer)].weights_layer == state.layer;
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<at::Tensor>& weights = versions_.newest().layers[i];
    for (std::size_t p = 0; is_owner(layers[i]) && p < weights.size(); ++p)
      layers[i].tensors.emplace_back(parameter_name(model_, layers[i].layer, p), copy(weights[p]));
  }
  for (std::size_t p = 0; p < layout_.parameters().size(); ++p) {
    LayerState& state = layers[layout_.parameters()[p].uses.front().layer];
    for (const model::OptimizerSlot& slot : optimizer_->state()) {
      if (is_owner(state))
        state.optimizer.emplace_back(slot_name(name_of(layout_.parameters()[p]), slot.name),
                                     copy(slot.tensors[p]));
    }
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    for (std::size_t b = 0; b < buffers_[i].size(); ++b)
      layers[i].tensors.emplace_back(buffer_name(model_, layers[i].layer, b), copy(buffers_[i][b]));
  }
  return layers;
}

void Stage::restore(const TensorsByName& tensors, const TensorsByName& optimizer) {
  const std::span<const at::Tensor> weights = versions_.newest_parameters();
  std::vector<model::OptimizerSlot> slots;
  if (optimizer_) {
    for (const std::string& slot : optimizer_->slot_names()) slots.push_back({slot});
  }
  const auto read = [&](const std::string& name, const at::Tensor& weight) {
    if (const auto found = tensors.find(name); found != tensors.end()) weight.copy_(found->second);
  };
  for (std::size_t p = 0; p < layout_.frozen().size(); ++p)
    read(name_of(layout_.frozen()[p]), versions_.frozen_parameters()[p]);
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const std::string name = name_of(layout_.parameters()[p]);
    read(name, weights[p]);
    for (model::OptimizerSlot& slot : slots) {
      const auto found = optimizer.find(slot_name(name, slot.name));
      if (found == optimizer.end()) continue;
      const at::Tensor& stored = found->second;
      slot.tensors.push_back(stored.to(weights[p].device(), stored.scalar_type(), /*non_blocking=*/false,
                                       /*copy=*/true, model::memory_format(segment_.format(), stored.dim())));
    }
  }
  for (const model::OptimizerSlot& slot : slots) {
    if (slot.tensors.size() == slots.front().tensors.size() &&
        (slot.tensors.empty() || slot.tensors.size() == weights.size()))
      continue;
    throw Error(ErrorKind::data, "the optimizer's state \"" + slot.name + "\" is there for " +
                                     std::to_string(slot.tensors.size()) + " of " +
                                     std::to_string(weights.size()) + " parameters; use a whole checkpoint");
  }
  if (!slots.empty() && !slots.front().tensors.empty()) optimizer_->set_state(std::move(slots));
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    for (std::size_t b = 0; b < buffers_[i].size(); ++b) {
      const auto found = tensors.find(buffer_name(model_, segment_.layers()[i], b));
      if (found != tensors.end()) buffers_[i][b].copy_(found->second);
    }
  }
}

}  // namespace pp::run
