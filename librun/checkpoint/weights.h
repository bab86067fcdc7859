// Trained tensors by their model-wide names (`conv1.weight`, `bn1.running_mean`), to and from files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/file.h"

namespace pp::run {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// As safetensors, in the order given. Neither stages nor replicas appear: given in model order, every plan of
/// one job writes the same bytes.
void write_weights(AtomicFile& file, const NamedTensors& tensors);

/// Throws pp::Error (data).
NamedTensors read_weights(const std::filesystem::path& path);

}  // namespace pp::run
