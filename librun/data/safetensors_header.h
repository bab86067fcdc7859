// The header of a safetensors file by itself, for readers that leave the tensors on disk. Free of Torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "librun/data/records.h"

namespace pp::run {

/// In front of the header: its length.
constexpr std::size_t kSafetensorsPrefix = 8;

/// What the header says of a tensor; `begin` and `end` count from the first byte behind the header.
struct StoredRange {
  std::string name;
  std::string dtype;  ///< as the format writes it: `F32`
  Shape shape;
  std::uint64_t begin = 0, end = 0;
};

/// What `__metadata__` says, by name.
using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::uint64_t data_offset = 0;         ///< of the first byte behind it
  std::vector<StoredRange> ranges = {};  ///< in the order of the bytes
  Metadata metadata = {};
};

/// Reads the header of `file` once: at most the 100 MB that the format allows. Names stand once, ranges fill
/// the data without gap or overlap. Throws pp::Error (data), without the name of the file.
SafetensorsHeader read_safetensors_header(const ByteSource& file);

/// Throws pp::Error (data) unless the range holds the elements of the shape, `size` bytes each; `type`: their
/// name for the message.
void require_elements(const StoredRange& range, std::int64_t size, std::string_view type);

}  // namespace pp::run
