#include "libprofile/model/parameters.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace ops {
namespace {

double fan_in(const ParameterSpec& weight) {
  return static_cast<double>(element_count(weight.shape)) / static_cast<double>(weight.shape.front());
}

void uniform(at::Tensor& tensor, double bound, const at::Generator& generator) {
  tensor.uniform_(-bound, bound, generator);
}

}  // namespace

void initialise_by_fan_in(at::Tensor& tensor, std::span<const ParameterSpec> parameters, std::size_t /*index*/,
                          const at::Generator& generator) {
  uniform(tensor, 1.0 / std::sqrt(fan_in(parameters[0])), generator);
}

void initialise_normal(at::Tensor& tensor, std::span<const ParameterSpec> /*parameters*/, std::size_t /*index*/,
                       const at::Generator& generator) {
  tensor.normal_(0.0, 1.0, generator);
}

void initialise_zero(at::Tensor& tensor, std::span<const ParameterSpec> /*parameters*/, std::size_t /*index*/,
                     const at::Generator& /*generator*/) {
  tensor.zero_();
}

void initialise_norm(at::Tensor& tensor, std::span<const ParameterSpec> /*parameters*/, std::size_t index,
                     const at::Generator& /*generator*/) {
  tensor.fill_(index == 0 ? 1.0 : 0.0);
}

void initialise_attention(at::Tensor& tensor, std::span<const ParameterSpec> parameters, std::size_t index,
                          const at::Generator& generator) {
  const ParameterSpec& parameter = parameters[index];
  if (parameter.shape.size() == 1) {
    tensor.zero_();
  } else if (index == 0) {
    const double fans = static_cast<double>(parameter.shape[0] + parameter.shape[1]);
    uniform(tensor, std::sqrt(6.0 / fans), generator);
  } else {
    uniform(tensor, 1.0 / std::sqrt(fan_in(parameter)), generator);
  }
}

void initialise_additive_attention(at::Tensor& tensor, std::span<const ParameterSpec> parameters,
                                   std::size_t index, const at::Generator& generator) {
  const ParameterSpec& parameter = parameters[index];
  const double units = static_cast<double>(parameters[0].shape[0]);
  if (parameter.name == "normalize_scalar") {
    tensor.fill_(1.0 / std::sqrt(units));
  } else if (parameter.name == "normalize_bias") {
    tensor.zero_();
  } else {
    uniform(tensor, 1.0 / std::sqrt(static_cast<double>(parameter.shape.back())), generator);
  }
}

void initialise_lstm(at::Tensor& tensor, std::span<const ParameterSpec> parameters, std::size_t /*index*/,
                     const at::Generator& generator) {
  uniform(tensor, 1.0 / std::sqrt(fan_in(parameters[1])), generator);  // weight_hh_l0 [4 hidden, hidden]
}

}  // namespace ops

namespace {

/// FNV-1a. ATen's generator takes 32 bits of a seed: mix() spreads them.
std::uint64_t name_hash(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

template <class T>
const T& at_index(const std::vector<T>& values, int index) {
  return values[static_cast<std::size_t>(index)];
}

}  // namespace

at::Tensor initial_parameter(const ResolvedModel& model, int layer, int index, std::uint64_t seed,
                             DType dtype) {
  const int owner = at_index(model.layers, layer).weights_layer;
  const Layer& owner_layer = at_index(model.graph.layers, owner);
  const std::vector<ParameterSpec>& parameters = at_index(model.layers, owner).parameters;
  const ops::Row* row = ops::find(owner_layer.op);
  if (row == nullptr || row->initialise == nullptr) {
    throw Error(ErrorKind::data, "layer \"" + owner_layer.name + "\" (" + owner_layer.op +
                                     "): no initial values; it can be planned, but not run");
  }
  const ParameterSpec& parameter = at_index(parameters, index);
  const std::uint64_t name = name_hash(owner_layer.name + "." + parameter.name);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(mix({.seed = seed ^ name}, 0));
  at::Tensor tensor = at::empty(parameter.shape, at::kFloat);
  row->initialise(tensor, parameters, static_cast<std::size_t>(index), generator);
  return tensor.to(scalar_type(dtype));
}

at::Tensor initial_buffer(const ResolvedModel& model, int layer, int index, DType dtype) {
  const ParameterSpec& buffer = at_index(at_index(model.layers, layer).buffers, index);
  const at::TensorOptions options(scalar_type(dtype));
  return buffer.name == "running_var" ? at::ones(buffer.shape, options) : at::zeros(buffer.shape, options);
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return at::kFloat;
    case DType::float64: return at::kDouble;
    case DType::bfloat16: return at::kBFloat16;
    case DType::int64: return at::kLong;
    case DType::uint8: return at::kByte;
  }
  throw Error(ErrorKind::internal, "scalar type: not a DType");
}

}  // namespace pp::model
