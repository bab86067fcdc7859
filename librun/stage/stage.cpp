#include "librun/stage/stage.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/parameters.h"
#include "librun/stage/block_squares.h"

namespace pp::run {

namespace {

std::optional<at::ScalarType> scalar_type(std::optional<Autocast> autocast) {
  if (!autocast) return std::nullopt;
  return *autocast == Autocast::float16 ? at::kHalf : at::kBFloat16;
}

}  // namespace

Stage::Stage(const ResolvedModel& model, StageOptions options)
    : model_(model),
      segment_(model, std::move(options.layers), options.with_loss, options.recompute, options.format),
      optimizer_(std::move(options.optimizer)),
      autocast_(scalar_type(options.autocast)),
      dtype_(model::scalar_type(options.dtype)),
      layout_(model, segment_, options.dtype, options.device),
      versions_(layout_, first_weights(options), options.policy, options.stages, options.index,
                options.per_update),
      buffers_(segment_.initial_buffers(options.dtype, options.device)),
      sums_(segment_.empty_gradients()),
      parts_(layout_.parts(options.owners)),
      owner_(options.owner) {
  segment_.use(std::move(options.kernels));
  if (options.recorded)
    recorded_.emplace(segment_, std::move(options.recorded->kinds), options.recorded->payer);
  for (const int layer : segment_.layers()) batch_norms_.push_back(batch_norms(model_, layer));
  if (layout_.parameters().empty() || !optimizer_) return;
  if (!options.rules.empty()) {
    std::vector<model::WeightRule> rules;
    for (const FlatLayout::Piece& piece : own()) {
      const std::string name = name_of(layout_.parameters()[piece.parameter]);
      rules.push_back({options.rules.rate_factor(name), options.rules.decays(name)});
    }
    optimizer_->set_rules(std::move(rules));
  }
  const auto like = versions_.newest_flat().options();
  gradient_ = at::zeros({layout_.gradient_size()}, options.master ? like.dtype(at::kFloat) : like);
  if (options.master) {
    for (const at::Tensor& weight : own_of(versions_.newest_flat())) masters_.push_back(weight.to(at::kFloat));
  }
  sums_.places = sums_.layers;
  update_gradients_ = own_of(gradient_);
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) {
    for (const FlatLayout::Use& use : parameter.uses)
      sums_.places[use.layer][use.index] = place(parameter, use);
  }
}

FlatLayout::Buffers Stage::first_weights(const StageOptions& options) const {
  FlatLayout::Buffers buffers = layout_.zeros();
  std::vector<model::ParameterPlace> drawn;
  const auto add = [&](const std::vector<FlatLayout::Parameter>& parameters, const at::Tensor& flat) {
    for (const FlatLayout::Parameter& parameter : parameters) {
      if (options.given && options.given->contains(name_of(parameter))) continue;
      const FlatLayout::Use& use = parameter.uses.front();
      drawn.push_back({segment_.layers()[use.layer], static_cast<int>(use.index),
                       FlatLayout::view(flat, parameter, parameter.offset())});
    }
  };
  add(layout_.parameters(), buffers.trained);
  add(layout_.frozen(), buffers.frozen);
  model::draw_parameters(model_, std::move(drawn), options.seed);
  return buffers;
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

model::Tensors Stage::given(std::span<at::Tensor> inputs) const {
  model::Tensors handles(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (segment_.inputs()[i].kind != TensorSource::Kind::layer) inputs[i].reset();
  }
  return handles;
}

model::Tensors Stage::forward(int micro_batch, std::int64_t step, std::span<at::Tensor> inputs,
                              const model::RandomKey& key, at::Generator& generator, Keep keep,
                              std::vector<double> label_shares) {
  model::PassContext context = training_context(key, generator);
  const bool as_recorded = recorded_ && label_shares.empty();
  context.label_shares = std::move(label_shares);
  if (keep == Keep::inputs) context.record = model::Record::none;
  std::shared_ptr<const model::Weights> weights = versions_.for_forward(step);
  RecordedPass* const recorded = as_recorded ? recorded_->take(weights, inputs, context) : nullptr;
  model::Tensors all = given(inputs);
  Flight flight{
      recorded != nullptr ? recorded->forward(all) : segment_.forward(weights, std::move(all), context),
      weights->version};
  flight.recorded = recorded;
  if (keep == Keep::inputs) {
    flight.weights = std::move(weights);
    flight.inputs.assign(inputs.begin(), inputs.end());
  }
  model::Tensors outputs = std::exchange(flight.pass.outputs, {});
  flights_.put(micro_batch, std::move(flight));
  return outputs;
}

void Stage::recompute(int micro_batch, std::span<at::Tensor> inputs, const model::RandomKey& key,
                      at::Generator& generator, std::vector<double> label_shares) {
  Flight& flight = flights_.at(micro_batch);
  model::Tensors kept = std::exchange(flight.inputs, {});
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i].defined()) kept[i] = std::exchange(inputs[i], at::Tensor());
  }
  model::PassContext context = training_context(key, generator);
  context.label_shares = std::move(label_shares);
  model::Pass again = segment_.forward(std::exchange(flight.weights, nullptr), given(kept), context);
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
  std::vector<at::Tensor> gradients;
  std::vector<bool> whole;
  for (std::size_t i = 0; i < own().size(); ++i) {
    const FlatLayout::Piece& piece = own()[i];
    const FlatLayout::Parameter& parameter = layout_.parameters()[piece.parameter];
    const FlatLayout::Use& use = parameter.uses.front();
    const int layer = segment_.layers()[use.layer];
    if (model_.layers[static_cast<std::size_t>(layer)].weights_layer != layer) continue;  // a copy
    norms.push_back({layer, use.index, (piece.offset - parameter.offset()) / kNormBlock, {}});
    gradients.push_back(update_gradients_[i]);
    whole.push_back(piece.length == parameter.length);
  }
  std::vector<std::vector<double>> squares = block_squares(gradients);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const std::vector<double>& blocks = squares[i];
    norms[i].squares = whole[i] ? std::vector{std::accumulate(blocks.begin(), blocks.end(), 0.0)} : blocks;
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
  if (shares_state() || !masters_.empty()) {
    if (!before.empty()) throw Error(ErrorKind::internal, "owners of state, and masters, keep no versions");
    const std::vector<at::Tensor> mine = own_of(versions_.newest_flat());
    if (!mine.empty()) optimizer_->step(masters_.empty() ? mine : masters_, update_gradients_, learning_rate);
    for (std::size_t i = 0; i < masters_.size(); ++i) mine[i].copy_(masters_[i]);
  } else if (!weights.empty()) {
    optimizer_->step(weights, update_gradients_, learning_rate, before);
  }
  for (const FlatLayout::Parameter& parameter : layout_.parameters()) sum(parameter.uses.front()).reset();
  commit_statistics();
  end_step();
}

std::vector<at::Tensor> Stage::own_of(const at::Tensor& flat) const {
  std::vector<at::Tensor> tensors;
  for (const FlatLayout::Piece& piece : own())
    tensors.push_back(FlatLayout::view(flat, layout_.parameters()[piece.parameter], piece));
  return tensors;
}

std::vector<Slice> Stage::weight_slices() const {
  std::vector<Slice> slices;
  for (std::size_t owner = 0; shares_state() && owner < parts_.size(); ++owner) {
    if (parts_[owner].empty()) continue;
    const FlatLayout::Piece& last = parts_[owner].back();
    slices.push_back({owner, parts_[owner].front().offset, last.offset + last.length});
  }
  return slices;
}

// Further uses of a parameter go to the owners of the same elements.
std::vector<Slice> Stage::gradient_slices() const {
  std::vector<Slice> slices = weight_slices();
  for (std::size_t owner = 0; shares_state() && owner < parts_.size(); ++owner) {
    for (const FlatLayout::Piece& piece : parts_[owner]) {
      const FlatLayout::Parameter& parameter = layout_.parameters()[piece.parameter];
      for (const FlatLayout::Use& use : std::span(parameter.uses).subspan(1)) {
        const std::int64_t begin = use.offset + piece.offset - parameter.offset();
        slices.push_back({owner, begin, begin + piece.length});
      }
    }
  }
  return slices;
}

std::vector<Slice> Stage::tied_slices(int owner) const {
  const std::vector<Slice> all = gradient_slices();
  std::vector<Slice> slices;
  for_each_use(owner, [&](const FlatLayout::Parameter& parameter, const FlatLayout::Use& use) {
    for (Slice slice : slices_within(all, use.offset, use.offset + parameter.length)) {
      slice.begin += use.offset, slice.end += use.offset;
      slices.push_back(slice);
    }
  });
  return slices;
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
                            std::span<model::LayerCache> caches, std::vector<double> label_shares) const {
  model::PassContext context;
  context.piece = piece;
  context.caches = caches;
  context.label_shares = std::move(label_shares);
  context.mode = model::Mode::evaluation;
  context.autocast = autocast_;
  context.generator = &generator;
  context.buffers = buffers_;
  context.dtype = dtype_;
  return segment_.forward(versions_.newest_shared(), inputs, context);
}

}  // namespace pp::run
