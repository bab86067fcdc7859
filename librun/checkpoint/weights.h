// Trained tensors by their model-wide names (`conv1.weight`, `bn1.running_mean`), to and from files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "librun/checkpoint/safetensors.h"

namespace pp::run {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Entries of a file that refer to the bytes of the tensors, which are dense and on the host. In the order
/// given: neither stages nor replicas appear, so in model order every plan of one job writes the same bytes.
std::vector<StoredTensor> stored(const NamedTensors& tensors);

/// All tensors, or those that `wanted` says yes to. Those whose bytes the file holds in memory share them and
/// are read-only. Throws pp::Error (data).
NamedTensors read_weights(const SafetensorsFile& file, const std::function<bool(const std::string&)>& wanted);
NamedTensors read_weights(const std::filesystem::path& path);

/// Tensors of files by name, read when they are asked for, each whole where its rows are stored (rows_name()).
/// Any number of threads may read.
class StoredTensors {
 public:
  StoredTensors() : StoredTensors(SafetensorsFile(std::vector<std::filesystem::path>())) {}
  explicit StoredTensors(SafetensorsFile file);

  bool contains(std::string_view name) const { return places_.contains(name); }
  /// On the host, charged to no account. Read-only: it may share bytes that a file holds in memory. Throws
  /// pp::Error (data), (internal) for a name that is not there.
  at::Tensor read(std::string_view name) const;
  /// To a tensor of its shape, of any type and device; at once where it is dense on the host and of its type.
  void read_to(std::string_view name, const at::Tensor& to) const;

 private:
  /// One, or those of its rows, from the first row on.
  const std::vector<std::size_t>& entries(std::string_view name) const;

  SafetensorsFile file_;
  std::map<std::string, std::vector<std::size_t>, std::less<>> places_;  ///< in the file's list
};

}  // namespace pp::run
