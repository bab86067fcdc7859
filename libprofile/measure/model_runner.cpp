#include "libprofile/measure/model_runner.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "libprofile/model/errors.h"
#include "libprofile/model/ops.h"

namespace pp::profile {
namespace {

/// Where a pass without layer timers books its laps.
constexpr int kWholeModel = 0;

double of_whole_model(const PassTimes& times, LapTimer::Phase phase) {
  return times[static_cast<std::size_t>(phase)][kWholeModel];
}

/// What each layer hands on: bytes, also of a view, and types. Not the loss.
class OutputProbe final : public model::LayerObserver {
 public:
  explicit OutputProbe(const model::Segment& segment)
      : bytes(static_cast<std::size_t>(segment.layer_count())), layers_(segment.layers()) {}
  void begin(int /*position*/, Phase /*phase*/) override {}
  void made(int position, model::TensorSpan outputs) override {
    const auto p = static_cast<std::size_t>(position);
    if (p == layers_.size()) return;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      bytes[p] += Bytes(outputs[k].numel() * static_cast<std::int64_t>(outputs[k].element_size()));
      if (outputs[k].is_floating_point()) types[{layers_[p], static_cast<int>(k)}] = outputs[k].scalar_type();
    }
  }
  void end(int /*position*/, Phase /*phase*/) override {}

  std::vector<Bytes> bytes;
  OutputTypes types;

 private:
  std::vector<int> layers_;
};

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

ModelRunner::ModelRunner(const ResolvedModel& model, const ModelPart& part, RunnerOptions options,
                         const MemoryAccount& account, const at::Device& device, Timer& timer)
    : model_(model),
      options_(std::move(options)),
      account_(account),
      device_(device),
      timer_(timer),
      segment_(model, part.layers, part.with_loss, {}, options_.memory_format),
      generator_(make_generator(device, options_.seed)),
      weights_(segment_.initial_weights(options_.seed, options_.dtype, device)),
      buffers_(segment_.initial_buffers(options_.dtype, device)),
      gradients_(segment_.empty_gradients()),
      optimizer_(std::make_unique<model::Optimizer>(OptimizerName::sgd, OptimizerSettings{{"momentum", 0}})),
      batches_(model, segment_, options_.micro_batch_sizes, options_.dtype, options_.sent, options_.seed,
               device) {
  for (std::size_t layer = 0; layer < gradients_.layers.size(); ++layer) {
    for (std::size_t i = 0; i < gradients_.layers[layer].size(); ++i) {
      const at::Tensor& weight = weights_->layers[layer][i];
      if (weight.requires_grad()) gradients_.layers[layer][i] = at::zeros_like(weight.detach());
    }
  }
  gradients_.places = gradients_.layers;
}

model::Pass ModelRunner::forward(std::vector<at::Tensor> batch, model::LayerObserver* observer) {
  const model::PassContext context{.key = {.seed = options_.seed, .step = step_++, .micro_batch = 0},
                                   .generator = &generator_,
                                   .buffers = buffers_,
                                   .autocast = options_.autocast,
                                   .dtype = model::scalar_type(options_.dtype)};
  model::Tensors given(std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
  model::Pass pass = segment_.forward(weights_, std::move(given), context, observer);
  if (options_.autocast) batches_.match_gradients(pass.outputs);
  pass.outputs.clear();  // nobody here reads the predictions; the executor hands its outputs on as well
  return pass;
}

model::Pass ModelRunner::timed_forward(LapTimer& laps, std::size_t size, model::LayerObserver* observer) {
  std::vector<at::Tensor> ahead = device_.is_cuda() ? batches_.cut(size) : std::vector<at::Tensor>();
  laps.start();
  return forward(device_.is_cuda() ? std::move(ahead) : batches_.cut(size), observer);
}

void ModelRunner::backward(model::Pass& pass, std::size_t size, Laps laps, model::LayerObserver* observer) {
  std::vector<model::Tensors> arriving = batches_.gradients(size);
  if (laps != Laps::split) {
    segment_.backward(pass, arriving, /*loss_weight=*/1.0, gradients_, observer);
    return;
  }
  segment_.input_gradient(pass, arriving, /*loss_weight=*/1.0, observer);
  segment_.weight_gradient(pass, gradients_, observer);
}

void ModelRunner::warm_up(std::size_t size) {
  if (!device_.is_cuda()) return;
  batches_.make(size);
  model::Pass pass = forward(batches_.batch(size), nullptr);
  backward(pass, size, Laps::full, nullptr);
  wait_for(device_);
}

model::KernelKeys ModelRunner::kernel_keys(std::size_t size) {
  model::KernelKeys keys;
  batches_.make(size);
  {
    const model::RecordKernels record(keys);
    model::Pass pass = forward(batches_.cut(size), nullptr);
    backward(pass, size, Laps::full, nullptr);
    update();
    pass = forward(batches_.cut(size), nullptr);  // whose weight gradients are the first of a step
    backward(pass, size, Laps::full, nullptr);
  }
  batches_.drop(size);
  return keys;
}

PassBytes ModelRunner::measure_bytes(std::size_t size) {
  PassBytes bytes;
  batches_.make(size);
  account_.reset_peak();
  const Bytes before = account_.live();
  {
    OutputProbe outputs(segment_);
    model::Pass pass = forward(batches_.cut(size), &outputs);
    if (segment_.has_loss()) outputs.bytes.emplace_back(static_cast<std::int64_t>(pass.loss.nbytes()));
    bytes.outputs = std::move(outputs.bytes);
    if (options_.autocast) output_types_ = std::move(outputs.types);
    bytes.kept = account_.live() - before;
    backward(pass, size, Laps::full, nullptr);
  }
  bytes.peak = account_.peak() - batches_.idle_bytes(size);
  bytes.workspace.resize(bytes.outputs.size());
  bytes.waiting.resize(bytes.outputs.size());
  for (const Laps laps : {Laps::full, Laps::split}) {
    update();
    probe_pass(size, laps, bytes);  // begins the weights' gradients
    probe_pass(size, laps, bytes);  // adds to them, which other kernels may do
  }
  wait_for(device_);
  return bytes;
}

void ModelRunner::probe_pass(std::size_t size, Laps laps, PassBytes& bytes) {
  std::vector<at::Tensor> held = segment_.held();  // no pass keeps these
  for (const std::vector<at::Tensor>& buffers : buffers_)
    held.insert(held.end(), buffers.begin(), buffers.end());
  for (const at::Tensor& parameter : distinct_parameters()) held.push_back(parameter);
  SavedMeter saved(held, positions(), account_);
  ByteProbe probe(bytes.outputs, data_inputs(size), saved, account_);
  model::Pass pass = forward(batches_.batch(size), &probe);
  bytes.saved = saved.layers();
  backward(pass, size, laps, &probe);
  for (std::size_t p = 0; p < bytes.workspace.size(); ++p) {
    bytes.workspace[p] = std::max(bytes.workspace[p], probe.workspace()[p]);
    Bytes waiting = probe.waiting()[p];
    // The batch stays; in a run it goes with the last layer that keeps it.
    if (waiting > Bytes(0) && reads_batch_only(p)) waiting += bytes.saved[p].own_input;
    bytes.waiting[p] = std::max(bytes.waiting[p], waiting);
  }
}

VisitTimes ModelRunner::run_visit(const Visit& visit, int in_flight) {
  VisitTimes times, dropped;
  InFlight passes;
  fill(passes, visit.size, in_flight - 1);
  for (int i = 0; i < visit.dropped; ++i) run_pass(passes, visit, dropped);
  if (visit.after_update) {
    drain(passes, visit.size);
    update();
    run_first_pass(passes, visit, in_flight, times);
  }
  for (int i = 0; i < visit.passes; ++i) run_pass(passes, visit, times);
  drain(passes, visit.size);
  return times;
}

void ModelRunner::fill(InFlight& passes, std::size_t size, int in_flight) {
  while (std::ssize(passes) < in_flight) passes.push_back(forward(batches_.batch(size), nullptr));
}

void ModelRunner::drain(InFlight& passes, std::size_t size) {
  for (model::Pass& pass : passes) backward(pass, size, Laps::full, nullptr);
  passes.clear();
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

void ModelRunner::run_first_pass(InFlight& passes, const Visit& visit, int in_flight, VisitTimes& times) {
  LapTimer laps(timer_, positions());
  model::LayerObserver* const observer = visit.kind.laps == Laps::whole ? nullptr : &laps;
  passes.push_back(timed_forward(laps, visit.size, observer));
  fill(passes, visit.size, in_flight);
  laps.start();
  backward(passes.front(), visit.size, visit.kind.laps, observer);
  passes.pop_front();
  PassTimes taken = laps.take();
  if (observer != nullptr) times.first = std::move(taken);
}

void ModelRunner::run_pass(InFlight& passes, const Visit& visit, VisitTimes& times) {
  const bool whole = visit.kind.laps == Laps::whole;
  LapTimer laps(timer_, positions());
  model::LayerObserver* const observer = whole ? nullptr : &laps;

  passes.push_back(timed_forward(laps, visit.size, observer));
  if (whole) laps.end(kWholeModel, LapTimer::Phase::forward);

  model::Pass pass = std::move(passes.front());
  passes.pop_front();
  laps.start();
  backward(pass, visit.size, visit.kind.laps, observer);
  if (whole) laps.end(kWholeModel, LapTimer::Phase::backward);

  PassTimes taken = laps.take();
  if (whole) {
    times.forward.push_back(of_whole_model(taken, LapTimer::Phase::forward));
    times.backward.push_back(of_whole_model(taken, LapTimer::Phase::backward));
  } else {
    times.layers.push_back(std::move(taken));
  }
}

void ModelRunner::time_updates(std::size_t size, std::span<UpdateRange> ranges, int dropped, int steps) {
  for (UpdateRange& range : ranges) {
    if (!range.new_version || !range.others.empty()) continue;
    for (const at::Tensor& weight : distinct_trained(weights_->layers, range.begin, range.end))
      range.others.push_back(at::zeros_like(weight));
  }
  for (int i = 0; i < dropped + steps; ++i) {
    model::Pass pass = forward(batches_.batch(size), nullptr);
    backward(pass, size, Laps::full, nullptr);
    timer_.mark();
    for (UpdateRange& range : ranges) {
      const std::vector<at::Tensor> weights = distinct_trained(weights_->layers, range.begin, range.end);
      const std::vector<at::Tensor> gradients = distinct_trained(gradients_.places, range.begin, range.end);
      if (range.new_version) {
        range.optimizer->step(range.others, gradients, /*learning_rate=*/0.0, weights);
      } else {
        range.optimizer->step(weights, gradients, /*learning_rate=*/0.0);
      }
      timer_.mark();
    }
    const std::vector<double> seconds = timer_.take();
    for (std::size_t s = 0; s < ranges.size() && i >= dropped; ++s) ranges[s].seconds.push_back(seconds[s]);
  }
}

Bytes ModelRunner::trained_bytes(const UpdateRange& range) const {
  Bytes sum;
  for (const at::Tensor& tensor : distinct_trained(weights_->layers, range.begin, range.end))
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

std::vector<DataInput> ModelRunner::data_inputs(std::size_t size) const {
  std::vector<DataInput> data;
  const std::vector<int>& layers = segment_.layers();
  for (std::size_t i = 0; i < segment_.inputs().size(); ++i) {
    const TensorSource& source = segment_.inputs()[i];
    if (source.kind == TensorSource::Kind::layer) continue;
    DataInput input{batches_.batch(size)[i], positions(), -1};
    const auto read = [&](int position, const std::vector<TensorSource>& sources) {
      if (std::ranges::count(sources, source) == 0) return;
      input.first = std::min(input.first, position);
      input.last = position;
    };
    for (std::size_t p = 0; p < layers.size(); ++p)
      read(static_cast<int>(p), model_.layers[static_cast<std::size_t>(layers[p])].sources);
    if (segment_.has_loss()) read(segment_.layer_count(), model_.loss_sources);
    data.push_back(std::move(input));
  }
  return data;
}

bool ModelRunner::reads_batch_only(std::size_t position) const {
  const std::vector<int>& layers = segment_.layers();
  if (position >= layers.size()) return false;  // the loss
  return std::ranges::none_of(
      model_.layers[static_cast<std::size_t>(layers[position])].sources, [&](const auto& source) {
        return source.kind == TensorSource::Kind::layer && std::ranges::count(layers, source.index) > 0;
      });
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
