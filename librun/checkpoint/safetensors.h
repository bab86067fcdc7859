// The safetensors format: 8 bytes little-endian length of a JSON header, the header (per tensor its dtype,
// shape and byte range), then the raw bytes. Free of Torch.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::run {

struct StoredTensor {
  std::string name;
  TensorType type;
  std::string_view bytes;  ///< dense, row by row, little-endian; owned by somebody else
};

/// What stands in front of the bytes of these tensors, which follow each other in this order; padded with
/// spaces to a multiple of 8 bytes. Their `bytes` are not looked at.
std::string safetensors_front(std::span<const StoredTensor> tensors);

/// Gives `write` the whole file, piece by piece, tensors in the order given. The same tensors give the same
/// bytes. Throws pp::Error (internal) for bytes that do not fit the type.
void write_safetensors(std::span<const StoredTensor> tensors,
                       const std::function<void(std::string_view)>& write);

/// A file in memory; the tensors refer into `content`. Not movable for that reason.
class SafetensorsFile {
 public:
  /// Reads and checks: names once, known dtypes, ranges that fit shapes and do not overlap. Throws pp::Error
  /// (data) with the file and what is wrong.
  explicit SafetensorsFile(const std::filesystem::path& path);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// In the order of the bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null when there is none of that name.
  const StoredTensor* find(std::string_view name) const;

 private:
  std::string content_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace pp::run
