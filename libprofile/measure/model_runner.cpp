#include "libprofile/measure/model_runner.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "libprofile/measure/batch.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/ops.h"

namespace pp::profile {
namespace {

// Samples of the data set, drawn in ever new orders: as many as these bytes hold, so that they are neither in
// the caches nor known to the processor's branch prediction.
constexpr std::int64_t kDataBytes = std::int64_t{1} << 24, kFewestDrawn = 64, kMostDrawn = 4096;

std::int64_t samples_of(const ResolvedModel& model, const std::vector<TensorSource>& sources, DType dtype) {
  std::int64_t bytes = 1;
  for (const TensorSource& source : sources) {
    if (source.kind == TensorSource::Kind::layer) continue;
    TensorType type = type_of(model, source);
    if (is_floating(type.dtype)) type.dtype = dtype;
    bytes += bytes_of(type).value;
  }
  return std::clamp(kDataBytes / bytes, kFewestDrawn, kMostDrawn);
}

/// With a loss nothing arrives from outside; without one, ones arrive at every floating output.
std::vector<model::Tensors> gradients_for_outputs(const ResolvedModel& model, const model::Segment& segment,
                                                  std::int64_t n, const at::TensorOptions& options) {
  std::vector<model::Tensors> gradients(segment.outputs().size());
  if (segment.has_loss()) return gradients;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const TensorType& type = type_of(model, segment.outputs()[k]);
    if (!is_floating(type.dtype)) continue;
    std::vector<std::int64_t> shape{n};
    shape.insert(shape.end(), type.shape.begin(), type.shape.end());
    gradients[k].push_back(at::ones(shape, options));
  }
  return gradients;
}

/// Where a pass without layer timers books its laps.
constexpr int kWholeModel = 0;

double of_whole_model(const PassTimes& times, LapTimer::Phase phase) {
  return times[static_cast<std::size_t>(phase)][kWholeModel];
}

double total(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

ModelPart whole_model(const ResolvedModel& model) {
  ModelPart part{std::vector<int>(model.layers.size()), model.graph.loss.has_value()};
  std::iota(part.layers.begin(), part.layers.end(), 0);
  return part;
}

std::vector<double> pass_seconds(const VisitTimes& times) {
  std::vector<double> seconds;
  for (const PassTimes& pass : times.layers) {
    double sum = 0;
    for (const std::vector<double>& phase : pass) sum += total(phase);
    seconds.push_back(sum);
  }
  for (std::size_t i = 0; i < times.forward.size(); ++i)
    seconds.push_back(times.forward[i] + times.backward[i]);
  return seconds;
}

ModelRunner::ModelRunner(const ResolvedModel& model, const ModelPart& part, std::vector<std::int64_t> sizes,
                         DType dtype, MemoryFormat format, std::uint64_t seed, const MemoryAccount& account,
                         const at::Device& device, Timer& timer)
    : model_(model),
      sizes_(std::move(sizes)),
      dtype_(dtype),
      account_(account),
      device_(device),
      timer_(timer),
      segment_(model, part.layers, part.with_loss, {}, format),
      generator_(make_generator(device, seed)),
      weights_(segment_.initial_weights(seed, dtype, device)),
      buffers_(segment_.initial_buffers(dtype, device)),
      gradients_(segment_.empty_gradients()),
      optimizer_(model::make_sgd({})),
      samples_(samples_of(model, segment_.inputs(), dtype)),
      draw_(seed),
      seed_(seed) {
  for (std::size_t layer = 0; layer < gradients_.layers.size(); ++layer) {
    for (std::size_t i = 0; i < gradients_.layers[layer].size(); ++i) {
      const at::Tensor& weight = weights_->layers[layer][i];
      if (weight.requires_grad()) gradients_.layers[layer][i] = at::zeros_like(weight.detach());
    }
  }
  gradients_.places = gradients_.layers;
  const ChargeMemory nobody{MemoryAccount()};  // nor does a worker pay for the training data
  for (const TensorSource& source : segment_.inputs()) {
    at::Tensor& tensor = data_.emplace_back();
    if (source.kind == TensorSource::Kind::layer) continue;
    tensor = random_batch(model, {source}, samples_, dtype, seed).front();
  }
  batches_.resize(sizes_.size());
  output_gradients_.resize(sizes_.size());
  boundaries_.resize(sizes_.size());
}

void ModelRunner::make_batch(std::size_t size) {
  model::detail::guarded(
      [] { return "data"; },
      [&] {
        batches_[size] = random_batch(model_, segment_.inputs(), sizes_[size], dtype_, seed_);
        for (at::Tensor& tensor : batches_[size]) tensor = tensor.to(device_);
        output_gradients_[size] = gradients_for_outputs(
            model_, segment_, sizes_[size], at::TensorOptions(device_).dtype(model::scalar_type(dtype_)));
      });
}

void ModelRunner::vary_boundaries(std::size_t size) {
  const ChargeMemory nobody{MemoryAccount()};
  const auto arranged = [&](const at::Tensor& tensor) {
    return tensor.to(device_).contiguous(model::memory_format(segment_.format(), tensor.dim()));
  };
  const auto is_sent = [&](std::size_t i) { return segment_.inputs()[i].kind == TensorSource::Kind::layer; };
  Boundaries& all = boundaries_[size];
  std::int64_t bytes = 1;
  for (std::size_t i = 0; i < batches_[size].size(); ++i)
    bytes += is_sent(i) ? static_cast<std::int64_t>(batches_[size][i].nbytes()) : 0;
  for (const model::Tensors& gradients : output_gradients_[size]) {
    for (const at::Tensor& gradient : gradients) bytes += static_cast<std::int64_t>(gradient.nbytes());
  }
  all.blocks = std::clamp(kDataBytes / bytes, std::int64_t{2}, kFewestDrawn);
  all.inputs.resize(batches_[size].size());
  for (std::size_t i = 0; i < all.inputs.size(); ++i) {
    if (!is_sent(i)) continue;
    all.inputs[i] = arranged(
        random_batch(model_, {segment_.inputs()[i]}, all.blocks * sizes_[size], dtype_, seed_).front());
  }
  all.gradients = gradients_for_outputs(model_, segment_, all.blocks * sizes_[size],
                                        at::TensorOptions(device_).dtype(model::scalar_type(dtype_)));
  for (model::Tensors& gradients : all.gradients) {
    for (at::Tensor& gradient : gradients) gradient = arranged(gradient);
  }
}

std::vector<at::Tensor> ModelRunner::cut_batch(std::size_t size) {
  const at::Tensor rows = at::empty({sizes_[size]}, at::kLong);
  for (std::int64_t& row :
       std::span(rows.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(rows.numel())))
    row = static_cast<std::int64_t>(draw_() % static_cast<std::uint64_t>(samples_));
  std::vector<at::Tensor> batch = batches_[size];
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (data_[i].defined()) batch[i] = at::index_select(data_[i], 0, rows).to(device_);
  }
  Boundaries& sent = boundaries_[size];
  if (sent.blocks == 0) return batch;
  const std::int64_t n = sizes_[size], block = sent.forwards++ % sent.blocks;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (sent.inputs[i].defined()) batch[i] = sent.inputs[i].narrow(0, block * n, n);
  }
  return batch;
}

model::Pass ModelRunner::forward(std::span<const at::Tensor> batch, model::LayerObserver* observer) {
  const model::PassContext context{.key = {.seed = seed_, .step = step_++, .micro_batch = 0},
                                   .generator = &generator_,
                                   .buffers = buffers_,
                                   .autocast = {},
                                   .dtype = model::scalar_type(dtype_)};
  model::Pass pass = segment_.forward(weights_, batch, context, observer);
  pass.outputs.clear();  // nobody here reads the predictions; the executor hands its outputs on as well
  return pass;
}

model::Pass ModelRunner::timed_forward(LapTimer& laps, std::size_t size, model::LayerObserver* observer) {
  const std::vector<at::Tensor> ahead = device_.is_cuda() ? cut_batch(size) : std::vector<at::Tensor>();
  laps.start();
  return forward(device_.is_cuda() ? ahead : cut_batch(size), observer);
}

std::vector<model::Tensors> ModelRunner::arriving_gradients(std::size_t size) {
  Boundaries& sent = boundaries_[size];
  if (sent.blocks == 0) return output_gradients_[size];
  const std::int64_t n = sizes_[size], block = sent.backwards++ % sent.blocks;
  std::vector<model::Tensors> arriving = sent.gradients;
  for (model::Tensors& gradients : arriving) {
    for (at::Tensor& gradient : gradients) gradient = gradient.narrow(0, block * n, n);
  }
  return arriving;
}

void ModelRunner::backward(model::Pass& pass, std::size_t size, PassKind kind, model::LayerObserver* observer) {
  std::vector<model::Tensors> arriving = arriving_gradients(size);
  if (!is_split(kind)) {
    segment_.backward(pass, arriving, /*loss_weight=*/1.0, gradients_, observer);
    return;
  }
  segment_.input_gradient(pass, arriving, /*loss_weight=*/1.0, observer);
  segment_.weight_gradient(pass, gradients_, observer);
}

void ModelRunner::warm_up(std::size_t size) {
  if (!device_.is_cuda()) return;
  make_batch(size);
  model::Pass pass = forward(batches_[size], nullptr);
  backward(pass, size, PassKind::full, nullptr);
  wait_for(device_);
}

model::KernelKeys ModelRunner::kernel_keys(std::size_t size) {
  model::KernelKeys keys;
  make_batch(size);
  {
    const model::RecordKernels record(keys);
    model::Pass pass = forward(cut_batch(size), nullptr);
    backward(pass, size, PassKind::full, nullptr);
    update();
    pass = forward(cut_batch(size), nullptr);  // whose weight gradients are the first of a step
    backward(pass, size, PassKind::full, nullptr);
  }
  batches_[size].clear();
  output_gradients_[size].clear();
  return keys;
}

PassBytes ModelRunner::measure_bytes(std::size_t size) {
  PassBytes bytes;
  make_batch(size);
  account_.reset_peak();
  const Bytes before = account_.live();
  {
    model::Pass pass = forward(cut_batch(size), nullptr);
    bytes.kept = account_.live() - before;
    backward(pass, size, PassKind::full, nullptr);
  }
  bytes.peak = account_.peak() - bytes_of_idle_batches(size);
  bytes.outputs = output_bytes(size);
  bytes.workspace.resize(bytes.outputs.size());
  bytes.waiting.resize(bytes.outputs.size());
  for (const PassKind kind : {PassKind::full, PassKind::split}) {
    update();
    probe_pass(size, kind, bytes);  // begins the weights' gradients
    probe_pass(size, kind, bytes);  // adds to them, which other kernels may do
  }
  wait_for(device_);
  return bytes;
}

void ModelRunner::probe_pass(std::size_t size, PassKind kind, PassBytes& bytes) {
  std::vector<at::Tensor> held = segment_.held();  // no pass keeps these
  for (const std::vector<at::Tensor>& buffers : buffers_)
    held.insert(held.end(), buffers.begin(), buffers.end());
  for (const at::Tensor& parameter : distinct_parameters()) held.push_back(parameter);
  SavedMeter saved(held, positions(), account_);
  ByteProbe probe(bytes.outputs, saved, account_);
  model::Pass pass = forward(batches_[size], &probe);
  bytes.saved = saved.layers();
  backward(pass, size, kind, &probe);
  for (std::size_t p = 0; p < bytes.workspace.size(); ++p) {
    bytes.workspace[p] = std::max(bytes.workspace[p], probe.workspace()[p]);
    Bytes waiting = probe.waiting()[p];
    // The batch stays; in a run it goes with the last layer that keeps it.
    if (waiting > Bytes(0) && reads_batch_only(p)) waiting += bytes.saved[p].own_input;
    bytes.waiting[p] = std::max(bytes.waiting[p], waiting);
  }
}

Bytes ModelRunner::bytes_of_idle_batches(std::size_t size) const {
  Bytes sum;
  for (std::size_t other = 0; other < batches_.size(); ++other) {
    for (std::size_t i = 0; i < batches_[other].size(); ++i) {
      if (other != size || data_[i].defined())
        sum += Bytes(static_cast<std::int64_t>(batches_[other][i].nbytes()));
    }
  }
  return sum;
}

VisitTimes ModelRunner::run_visit(const Visit& visit, int in_flight) {
  VisitTimes times, dropped;
  Flying flying;
  fill(flying, visit.size, in_flight - 1);
  for (int i = 0; i < visit.dropped; ++i) run_pass(flying, visit, dropped);
  if (visit.after_update) {
    drain(flying, visit.size);
    update();
    run_first_pass(flying, visit, in_flight, times);
  }
  for (int i = 0; i < visit.passes; ++i) run_pass(flying, visit, times);
  drain(flying, visit.size);
  return times;
}

void ModelRunner::fill(Flying& flying, std::size_t size, int in_flight) {
  while (std::ssize(flying) < in_flight) flying.push_back(forward(batches_[size], nullptr));
}

void ModelRunner::drain(Flying& flying, std::size_t size) {
  for (model::Pass& pass : flying) backward(pass, size, PassKind::full, nullptr);
  flying.clear();
}

void ModelRunner::update() {
  std::vector<at::Tensor> weights, gradients;
  for (std::size_t p = 0; p < gradients_.layers.size(); ++p) {
    for (std::size_t i = 0; i < gradients_.layers[p].size(); ++i) {
      const at::Tensor& gradient = gradients_.layers[p][i];
      if (!gradient.defined() || !owns_weights(p)) continue;
      weights.push_back(weights_->layers[p][i]);
      gradients.push_back(gradient);
    }
  }
  model::detail::guarded([] { return "the update"; },
                         [&] {
                           if (!weights.empty()) optimizer_->step(weights, gradients, /*learning_rate=*/0.0);
                         });
  for (std::vector<at::Tensor>& layer : gradients_.layers) {
    for (at::Tensor& gradient : layer) gradient.reset();
  }
}

void ModelRunner::run_first_pass(Flying& flying, const Visit& visit, int in_flight, VisitTimes& times) {
  LapTimer laps(timer_, positions());
  model::LayerObserver* const observer = visit.kind == PassKind::whole ? nullptr : &laps;
  flying.push_back(timed_forward(laps, visit.size, observer));
  fill(flying, visit.size, in_flight);
  laps.start();
  backward(flying.front(), visit.size, visit.kind, observer);
  flying.pop_front();
  PassTimes taken = laps.take();
  if (observer != nullptr) times.first = std::move(taken);
}

void ModelRunner::run_pass(Flying& flying, const Visit& visit, VisitTimes& times) {
  const bool whole = visit.kind == PassKind::whole;
  LapTimer laps(timer_, positions());
  model::LayerObserver* const observer = whole ? nullptr : &laps;

  flying.push_back(timed_forward(laps, visit.size, observer));
  if (whole) laps.end(kWholeModel, LapTimer::Phase::forward);

  model::Pass pass = std::move(flying.front());
  flying.pop_front();
  laps.start();
  backward(pass, visit.size, visit.kind, observer);
  if (whole) laps.end(kWholeModel, LapTimer::Phase::backward);

  PassTimes taken = laps.take();
  if (whole) {
    times.forward.push_back(of_whole_model(taken, LapTimer::Phase::forward));
    times.backward.push_back(of_whole_model(taken, LapTimer::Phase::backward));
  } else {
    times.layers.push_back(std::move(taken));
  }
}

void ModelRunner::time_updates(std::size_t size, std::span<Stretch> stretches, int dropped, int steps) {
  for (Stretch& stretch : stretches) {
    if (!stretch.new_version || !stretch.others.empty()) continue;
    for (const at::Tensor& weight : distinct_trained(weights_->layers, stretch.begin, stretch.end))
      stretch.others.push_back(at::zeros_like(weight));
  }
  for (int i = 0; i < dropped + steps; ++i) {
    model::Pass pass = forward(batches_[size], nullptr);
    backward(pass, size, PassKind::full, nullptr);
    timer_.mark();
    for (Stretch& stretch : stretches) {
      const std::vector<at::Tensor> weights = distinct_trained(weights_->layers, stretch.begin, stretch.end);
      const std::vector<at::Tensor> gradients = distinct_trained(gradients_.places, stretch.begin, stretch.end);
      if (stretch.new_version) {
        stretch.optimizer->step(stretch.others, gradients, /*learning_rate=*/0.0, weights);
      } else {
        stretch.optimizer->step(weights, gradients, /*learning_rate=*/0.0);
      }
      timer_.mark();
    }
    const std::vector<double> seconds = timer_.take();
    for (std::size_t s = 0; s < stretches.size() && i >= dropped; ++s)
      stretches[s].seconds.push_back(seconds[s]);
  }
}

Bytes ModelRunner::trained_bytes(const Stretch& stretch) const {
  Bytes sum;
  for (const at::Tensor& tensor : distinct_trained(weights_->layers, stretch.begin, stretch.end))
    sum += Bytes(static_cast<std::int64_t>(tensor.nbytes()));
  return sum;
}

std::vector<at::Tensor> ModelRunner::distinct_trained(const std::vector<std::vector<at::Tensor>>& tensors,
                                                      int begin, int end) const {
  std::vector<at::Tensor> found;
  for (std::size_t p = static_cast<std::size_t>(begin); p < static_cast<std::size_t>(end); ++p) {
    for (std::size_t i = 0; owns_weights(p) && i < tensors[p].size(); ++i) {
      if (weights_->layers[p][i].requires_grad()) found.push_back(tensors[p][i]);
    }
  }
  return found;
}

std::vector<at::Tensor> ModelRunner::distinct_parameters() const {
  std::vector<at::Tensor> found;
  for (std::size_t p = 0; p < weights_->layers.size(); ++p) {
    if (owns_weights(p)) found.insert(found.end(), weights_->layers[p].begin(), weights_->layers[p].end());
  }
  return found;
}

/// The first layer of the part that holds these weights.
bool ModelRunner::owns_weights(std::size_t position) const {
  const std::vector<int>& layers = segment_.layers();
  const auto owner = [&](int layer) { return model_.layers[static_cast<std::size_t>(layer)].weights_layer; };
  const auto end = layers.begin() + static_cast<std::ptrdiff_t>(position);
  return std::none_of(layers.begin(), end, [&](int layer) { return owner(layer) == owner(*end); });
}

bool ModelRunner::reads_batch_only(std::size_t position) const {
  const std::vector<int>& layers = segment_.layers();
  if (position >= layers.size()) return false;  // the loss
  return std::ranges::none_of(
      model_.layers[static_cast<std::size_t>(layers[position])].sources, [&](const auto& source) {
        return source.kind == TensorSource::Kind::layer && std::ranges::count(layers, source.index) > 0;
      });
}

std::vector<Bytes> ModelRunner::output_bytes(std::size_t size) const {
  const auto bytes_at = [&](TensorType type) {
    if (is_floating(type.dtype)) type.dtype = dtype_;
    return bytes_of(type);
  };
  std::vector<Bytes> bytes;
  for (const int layer : segment_.layers()) {
    Bytes sum;
    for (const TensorType& type : model_.layers[static_cast<std::size_t>(layer)].outputs)
      sum += bytes_at(type) * sizes_[size];
    bytes.push_back(sum);
  }
  if (segment_.has_loss()) bytes.emplace_back(size_of(dtype_));
  return bytes;
}

std::vector<Bytes> ModelRunner::buffer_bytes() const {
  std::vector<Bytes> bytes;
  for (const std::vector<at::Tensor>& layer : buffers_) {
    Bytes sum;
    for (const at::Tensor& buffer : layer) sum += Bytes(static_cast<std::int64_t>(buffer.nbytes()));
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace pp::profile
