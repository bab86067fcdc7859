#include "librun/checkpoint/weights.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <memory>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/ops.h"
#include "librun/checkpoint/model_tensors.h"

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

TensorsByName joined(NamedTensors tensors) {
  TensorsByName all;
  std::map<std::string, std::map<std::int64_t, at::Tensor>> parts;  // by first row
  for (auto& [name, tensor] : tensors) {
    if (const std::optional<RowsOf> found = parse_rows_name(name)) {
      parts[found->whole].emplace(found->rows.first, std::move(tensor));
    } else {
      all.emplace(name, std::move(tensor));
    }
  }
  for (auto& [name, rows] : parts) {
    std::vector<at::Tensor> in_order;
    for (auto& [first, tensor] : rows) in_order.push_back(std::move(tensor));
    all.emplace(name, at::cat(in_order));
  }
  return all;
}

NamedTensors read_weights(const SafetensorsFile& file, const std::function<bool(const std::string&)>& wanted) {
  NamedTensors tensors;
  for (const SafetensorsFile::Entry& entry : file.tensors()) {
    if (!wanted(entry.name)) continue;
    const at::TensorOptions options(model::scalar_type(entry.type.dtype));
    if (std::shared_ptr<const char> held = file.held(entry)) {
      void* const bytes = const_cast<char*>(held.get());  // read-only, as the header says
      tensors.emplace_back(entry.name,
                           at::from_blob(
                               bytes, entry.type.shape, [held = std::move(held)](void*) {}, options));
      continue;
    }
    at::Tensor tensor = at::empty(entry.type.shape, options);
    if (tensor.numel() > 0) file.read(entry, {static_cast<char*>(tensor.data_ptr()), tensor.nbytes()});
    tensors.emplace_back(entry.name, std::move(tensor));
  }
  return tensors;
}

NamedTensors read_weights(const std::filesystem::path& path) {
  return read_weights(SafetensorsFile(path), [](const std::string&) { return true; });
}

}  // namespace pp::run
