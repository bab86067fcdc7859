#include "librun/checkpoint/weights.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"

namespace pp::run {

namespace {

DType dtype_of(const std::string& name, at::ScalarType type) {
  for (const auto& [dtype, text] : EnumNames<DType>::table) {
    if (model::scalar_type(dtype) == type) return dtype;
  }
  throw Error(ErrorKind::internal, name + ": a tensor of a type that models do not have");
}

}  // namespace

std::vector<StoredTensor> stored(const NamedTensors& tensors) {
  std::vector<StoredTensor> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({name,
                       {tensor.sizes().vec(), dtype_of(name, tensor.scalar_type())},
                       {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()}});
  }
  return entries;
}

NamedTensors read_weights(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  NamedTensors tensors;
  for (const StoredTensor& stored : file.tensors()) {
    at::Tensor tensor = at::empty(stored.type.shape, at::TensorOptions(model::scalar_type(stored.type.dtype)));
    if (!stored.bytes.empty()) std::memcpy(tensor.data_ptr(), stored.bytes.data(), stored.bytes.size());
    tensors.emplace_back(stored.name, std::move(tensor));
  }
  return tensors;
}

}  // namespace pp::run
