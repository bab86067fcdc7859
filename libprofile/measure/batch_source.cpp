#include "libprofile/measure/batch_source.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <span>

#include "libprofile/core/model/model_traits.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/ops.h"

namespace pp::profile {

namespace {

at::Tensor random_tensor(const ResolvedModel& model, const TensorSource& source, std::int64_t n, DType dtype,
                         at::Generator& generator) {
  const TensorType& type = type_of(model, source);
  std::vector<std::int64_t> shape{n};
  shape.insert(shape.end(), type.shape.begin(), type.shape.end());
  if (is_floating(type.dtype)) {
    return at::empty(shape, model::scalar_type(dtype)).normal_(0.0, 1.0, generator);
  }
  return at::empty(shape, model::scalar_type(type.dtype)).random_(0, integer_limit(model, source), generator);
}

}  // namespace

const TensorType& type_of(const ResolvedModel& model, const TensorSource& source) {
  const std::size_t index = static_cast<std::size_t>(source.index);
  switch (source.kind) {
    case TensorSource::Kind::input: return model.graph.inputs[index].type;
    case TensorSource::Kind::target: return model.graph.targets[index].type;
    case TensorSource::Kind::layer: break;
  }
  return model.layers[index].outputs[static_cast<std::size_t>(source.output)];
}

std::int64_t integer_limit(const ResolvedModel& model, const TensorSource& source) {
  const std::int64_t limit = index_limit(model, source);
  return limit == 0 ? 2 : limit;
}

std::vector<at::Tensor> random_batch(const ResolvedModel& model, const std::vector<TensorSource>& sources,
                                     std::int64_t n, DType dtype, std::uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> batch;
  for (const TensorSource& source : sources) batch.push_back(random_tensor(model, source, n, dtype, generator));
  return batch;
}

namespace {

// Samples of the data set, drawn in ever new orders, and what other stages send: as many as these bytes hold,
// so that they are neither in the caches nor known to the processor's branch prediction.
constexpr std::int64_t kDataBytes = std::int64_t{1} << 24, kFewest = 2, kMostDrawn = 4096, kMostSent = 64;

bool is_sent(const TensorSource& source) { return source.kind == TensorSource::Kind::layer; }

std::int64_t samples_of(const ResolvedModel& model, const std::vector<TensorSource>& sources, DType dtype) {
  std::int64_t bytes = 1;
  for (const TensorSource& source : sources) {
    if (is_sent(source)) continue;
    TensorType type = type_of(model, source);
    if (is_floating(type.dtype)) type.dtype = dtype;
    bytes += bytes_of(type).value;
  }
  return std::clamp(kDataBytes / bytes, kFewest, kMostDrawn);
}

std::int64_t held_bytes(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

}  // namespace

BatchSource::BatchSource(const ResolvedModel& model, const model::Segment& segment,
                         std::vector<std::int64_t> sizes, DType dtype, OutputTypes types, std::uint64_t seed,
                         const at::Device& device)
    : model_(model),
      segment_(segment),
      sizes_(std::move(sizes)),
      dtype_(dtype),
      types_(std::move(types)),
      seed_(seed),
      device_(device),
      samples_(samples_of(model, segment.inputs(), dtype)),
      batches_(sizes_.size()),
      output_gradients_(sizes_.size()),
      boundaries_(sizes_.size()),
      draw_(seed) {
  const ChargeMemory nobody{MemoryAccount()};
  for (const TensorSource& source : segment_.inputs())
    data_.push_back(is_sent(source) ? at::Tensor() : drawn({source}, samples_).front());
}

at::ScalarType BatchSource::type_of_sent(const TensorSource& source) const {
  const auto found = types_.find({source.index, source.output});
  return found == types_.end() ? model::scalar_type(dtype_) : found->second;
}

std::vector<at::Tensor> BatchSource::drawn(const std::vector<TensorSource>& sources, std::int64_t n) const {
  std::vector<at::Tensor> tensors = random_batch(model_, sources, n, dtype_, seed_);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (is_sent(sources[i]) && tensors[i].is_floating_point())
      tensors[i] = tensors[i].to(type_of_sent(sources[i]));
  }
  return tensors;
}

/// With a loss nothing arrives from outside; without one, ones arrive at every floating output.
std::vector<model::Tensors> BatchSource::ones_for_outputs(std::int64_t n) const {
  std::vector<model::Tensors> gradients(segment_.outputs().size());
  if (segment_.has_loss()) return gradients;
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const TensorSource& output = segment_.outputs()[k];
    const TensorType& type = type_of(model_, output);
    if (!is_floating(type.dtype)) continue;
    std::vector<std::int64_t> shape{n};
    shape.insert(shape.end(), type.shape.begin(), type.shape.end());
    gradients[k].push_back(at::ones(shape, at::TensorOptions(device_).dtype(type_of_sent(output))));
  }
  return gradients;
}

void BatchSource::make(std::size_t size) {
  model::detail::guarded([] { return "data"; },
                         [&] {
                           batches_[size] = drawn(segment_.inputs(), sizes_[size]);
                           for (at::Tensor& tensor : batches_[size]) tensor = tensor.to(device_);
                           output_gradients_[size] = ones_for_outputs(sizes_[size]);
                         });
}

void BatchSource::drop(std::size_t size) {
  batches_[size].clear();
  output_gradients_[size].clear();
}

void BatchSource::match_gradients(model::TensorSpan outputs) {
  bool changed = false;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const TensorSource& output = segment_.outputs()[k];
    if (!outputs[k].is_floating_point() || outputs[k].scalar_type() == type_of_sent(output)) continue;
    types_[{output.index, output.output}] = outputs[k].scalar_type();
    changed = true;
  }
  for (std::size_t size = 0; changed && size < sizes_.size(); ++size) {
    if (!batches_[size].empty()) output_gradients_[size] = ones_for_outputs(sizes_[size]);
  }
}

void BatchSource::vary_boundaries(std::size_t size) {
  const ChargeMemory nobody{MemoryAccount()};
  const auto arranged = [&](const at::Tensor& tensor) {
    return tensor.to(device_).contiguous(model::memory_format(segment_.format(), tensor.dim()));
  };
  Boundaries& all = boundaries_[size];
  std::int64_t bytes = 1;
  for (std::size_t i = 0; i < batches_[size].size(); ++i)
    bytes += is_sent(segment_.inputs()[i]) ? held_bytes(batches_[size][i]) : 0;
  for (const model::Tensors& gradients : output_gradients_[size]) {
    for (const at::Tensor& gradient : gradients) bytes += held_bytes(gradient);
  }
  all.blocks = std::clamp(kDataBytes / bytes, kFewest, kMostSent);
  all.inputs.clear();
  for (const TensorSource& source : segment_.inputs())
    all.inputs.push_back(is_sent(source) ? arranged(drawn({source}, all.blocks * sizes_[size]).front())
                                         : at::Tensor());
  all.gradients = ones_for_outputs(all.blocks * sizes_[size]);
  for (model::Tensors& gradients : all.gradients) {
    for (at::Tensor& gradient : gradients) gradient = arranged(gradient);
  }
}

std::vector<at::Tensor> BatchSource::cut(std::size_t size) {
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

std::vector<model::Tensors> BatchSource::gradients(std::size_t size) {
  Boundaries& sent = boundaries_[size];
  if (sent.blocks == 0) return output_gradients_[size];
  const std::int64_t n = sizes_[size], block = sent.backwards++ % sent.blocks;
  std::vector<model::Tensors> arriving = sent.gradients;
  for (model::Tensors& gradients : arriving) {
    for (at::Tensor& gradient : gradients) gradient = gradient.narrow(0, block * n, n);
  }
  return arriving;
}

Bytes BatchSource::idle_bytes(std::size_t size) const {
  Bytes sum;
  for (std::size_t other = 0; other < batches_.size(); ++other) {
    for (std::size_t i = 0; i < batches_[other].size(); ++i) {
      if (other != size || data_[i].defined()) sum += Bytes(held_bytes(batches_[other][i]));
    }
  }
  return sum;
}

}  // namespace pp::profile
