#include "libprofile/measure/batch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "libprofile/core/model/index_limit.h"
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

}  // namespace pp::profile
