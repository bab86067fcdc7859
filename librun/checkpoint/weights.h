// Trained tensors by their model-wide names (`conv1.weight`, `bn1.running_mean`), to and from files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "librun/checkpoint/safetensors.h"

namespace pp::run {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
using TensorsByName = std::map<std::string, at::Tensor, std::less<>>;

/// Entries of a file that refer to the bytes of the tensors, which are dense and on the host. In the order
/// given: neither stages nor replicas appear, so in model order every plan of one job writes the same bytes.
std::vector<StoredTensor> stored(const NamedTensors& tensors);

/// By name, rows of one tensor (rows_name()) joined to the whole.
TensorsByName joined(NamedTensors tensors);

/// All tensors, or those that `wanted` says yes to. Those whose bytes the file holds in memory share them and
/// are read-only. Throws pp::Error (data).
NamedTensors read_weights(const SafetensorsFile& file, const std::function<bool(const std::string&)>& wanted);
NamedTensors read_weights(const std::filesystem::path& path);

}  // namespace pp::run
