// The header of a safetensors file by itself, for readers that leave the tensors on disk. Free of Torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

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

/// Bytes of the header of a file that begins with `prefix` and has `file_bytes`; at most the 100 MB that the
/// format allows. Throws pp::Error (data).
std::uint64_t safetensors_header_bytes(std::string_view prefix, std::uint64_t file_bytes);

/// In the order of the bytes. Names stand once, ranges fill `data_bytes` without gap or overlap. Throws
/// pp::Error (data).
std::vector<StoredRange> read_safetensors_header(std::string_view header, std::uint64_t data_bytes);

/// Throws pp::Error (data) unless the range holds the elements of the shape, `size` bytes each; `type`: their
/// name for the message.
void require_elements(const StoredRange& range, std::int64_t size, std::string_view type);

}  // namespace pp::run
