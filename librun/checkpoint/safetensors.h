// The safetensors format: 8 bytes little-endian length of a JSON header, the header (per tensor its dtype,
// shape and byte range), then the raw bytes. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "librun/data/records.h"
#include "librun/data/safetensors_header.h"

namespace pp::run {

struct StoredTensor {
  std::string name;
  TensorType type;
  std::string_view bytes;  ///< dense, row by row, little-endian; owned by somebody else
};

/// What stands in front of the bytes of these tensors, which follow each other in this order; padded with
/// spaces to a multiple of 8 bytes. Their `bytes` are not looked at.
std::string safetensors_front(std::span<const StoredTensor> tensors, const Metadata& metadata = {});

/// Gives `write` the whole file, piece by piece, tensors in the order given. The same tensors give the same
/// bytes. Throws pp::Error (internal) for bytes that do not fit the type.
void write_safetensors(std::span<const StoredTensor> tensors,
                       const std::function<void(std::string_view)>& write, const Metadata& metadata = {});

/// Tensors that stay where they are until they are read: of one file, or of several that have parts of the
/// whole.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    TensorType type;
    std::size_t part = 0;
    std::uint64_t offset = 0;  ///< in its file
    bool half = false;         ///< stored as float16, of which float32 has every value
  };

  explicit SafetensorsFile(const std::filesystem::path& path) : SafetensorsFile(std::vector{path}) {}
  /// Reads the headers and checks: names once, known dtypes, ranges that fit shapes and do not overlap. Throws
  /// pp::Error (data) with the file and what is wrong.
  /// Parts that have been `read` are taken from there.
  explicit SafetensorsFile(const std::vector<std::filesystem::path>& parts, const ReadFiles& read = {});

  /// Part by part, in the order of the bytes.
  const std::vector<Entry>& tensors() const { return tensors_; }
  /// The metadata of all parts.
  const Metadata& metadata() const { return metadata_; }
  /// Null when there is none of that name.
  const Entry* find(std::string_view name) const;
  /// Fills `out`, which has the size of its type. Throws pp::Error (data).
  void read(const Entry& entry, std::span<char> out) const;
  std::string read(const Entry& entry) const;
  /// The bytes where they lie in memory as read() gives them; null: they are read().
  std::shared_ptr<const char> held(const Entry& entry) const;

 private:
  void add(const ByteSource& file);

  std::vector<std::unique_ptr<const ByteSource>> parts_;
  std::vector<ReadFile> read_;  ///< per part; without bytes: it is on disk
  std::vector<Entry> tensors_;
  Metadata metadata_;
  std::map<std::string, std::size_t, std::less<>> places_;  ///< by name, in `tensors_`
};

}  // namespace pp::run
