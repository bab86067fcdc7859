#include "librun/checkpoint/weights.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <memory>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/device/memory_meter.h"
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

/// `to`: dense, on the host, of the entry's type and shape.
void read_at_once(const SafetensorsFile& file, const SafetensorsFile::Entry& entry, const at::Tensor& to) {
  if (to.numel() > 0) file.read(entry, {static_cast<char*>(to.mutable_data_ptr()), to.nbytes()});
}

at::Tensor read_tensor(const SafetensorsFile& file, const SafetensorsFile::Entry& entry) {
  const at::TensorOptions options(model::scalar_type(entry.type.dtype));
  if (std::shared_ptr<const char> held = file.held(entry)) {
    void* const bytes = const_cast<char*>(held.get());  // read-only, as the header says
    return at::from_blob(
        bytes, entry.type.shape, [held = std::move(held)](void*) {}, options);
  }
  const at::Tensor tensor = at::empty(entry.type.shape, options);
  read_at_once(file, entry, tensor);
  return tensor;
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

NamedTensors read_weights(const SafetensorsFile& file, const std::function<bool(const std::string&)>& wanted) {
  NamedTensors tensors;
  for (const SafetensorsFile::Entry& entry : file.tensors())
    if (wanted(entry.name)) tensors.emplace_back(entry.name, read_tensor(file, entry));
  return tensors;
}

NamedTensors read_weights(const std::filesystem::path& path) {
  return read_weights(SafetensorsFile(path), [](const std::string&) { return true; });
}

StoredTensors::StoredTensors(SafetensorsFile file) : file_(std::move(file)) {
  std::map<std::string, std::map<std::int64_t, std::size_t>> rows;  // by the first
  for (std::size_t i = 0; i < file_.tensors().size(); ++i) {
    const std::string& name = file_.tensors()[i].name;
    if (const std::optional<RowsOf> found = parse_rows_name(name)) {
      rows[found->whole].emplace(found->rows.first, i);
    } else {
      places_[name] = {i};
    }
  }
  for (const auto& [name, entries] : rows) {
    std::vector<std::size_t>& in_order = places_[name];
    for (const auto& [first, entry] : entries) in_order.push_back(entry);
  }
}

const std::vector<std::size_t>& StoredTensors::entries(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) throw Error(ErrorKind::internal, std::string(name) + ": is not stored");
  return found->second;
}

at::Tensor StoredTensors::read(std::string_view name) const {
  const profile::ChargeMemory nobody{profile::MemoryAccount()};
  std::vector<at::Tensor> parts;
  for (const std::size_t entry : entries(name)) parts.push_back(read_tensor(file_, file_.tensors()[entry]));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

void StoredTensors::read_to(std::string_view name, const at::Tensor& to) const {
  const std::vector<std::size_t>& entries = this->entries(name);
  const SafetensorsFile::Entry& first = file_.tensors()[entries.front()];
  const bool at_once = entries.size() == 1 && to.is_cpu() && to.is_contiguous() &&
                       to.scalar_type() == model::scalar_type(first.type.dtype);
  if (at_once) {
    read_at_once(file_, first, to);
  } else {
    to.copy_(read(name));
  }
}

}  // namespace pp::run
