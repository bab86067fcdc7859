// The safetensors format: 8 bytes little-endian length of a JSON header, the header (per tensor its dtype,
// shape and byte range), then the raw bytes. Free of Torch.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/model_graph.h"

namespace pp::run {

struct StoredTensor {
  std::string name;
  TensorType type;
  std::string_view bytes;  ///< dense, row by row, little-endian; owned by somebody else
};

/// Appends the whole file in the order given; the header is padded with spaces to a multiple of 8 bytes. The
/// same tensors give the same bytes. Throws pp::Error (internal) for bytes that do not fit the type, (run) when
/// the disk is full.
void write_safetensors(AtomicFile& file, std::span<const StoredTensor> tensors);

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
