#include "librun/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "librun/checkpoint/safetensors_header.h"

namespace pp::run {

namespace {

constexpr std::array kDTypes{std::pair{DType::float32, "F32"sv},   std::pair{DType::float64, "F64"sv},
                             std::pair{DType::bfloat16, "BF16"sv}, std::pair{DType::int64, "I64"sv},
                             std::pair{DType::uint8, "U8"sv},      std::pair{DType::boolean, "BOOL"sv}};

std::string_view tag_of(DType dtype) {
  return std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& row) { return row.first == dtype; })
      ->second;
}

DType dtype_of(const StoredRange& range) {
  for (const auto& [dtype, name] : kDTypes) {
    if (name == range.dtype) return dtype;
  }
  throw Error(ErrorKind::data,
              "/" + range.name + "/dtype: \"" + range.dtype + "\" is none of F32, F64, BF16, I64, U8, BOOL");
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift & 0xff));
  return bytes;
}

std::vector<StoredTensor> read_entries(std::string_view content) {
  const std::uint64_t length = safetensors_header_bytes(content.substr(0, kSafetensorsPrefix), content.size());
  const auto header_size = static_cast<std::size_t>(length);
  const std::string_view data = content.substr(kSafetensorsPrefix + header_size);
  std::vector<StoredTensor> tensors;
  for (StoredRange& range :
       read_safetensors_header(content.substr(kSafetensorsPrefix, header_size), data.size())) {
    const DType dtype = dtype_of(range);
    require_elements(range, size_of(dtype), name_of(dtype));
    const auto begin = static_cast<std::size_t>(range.begin), end = static_cast<std::size_t>(range.end);
    tensors.push_back(
        {std::move(range.name), {std::move(range.shape), dtype}, data.substr(begin, end - begin)});
  }
  return tensors;
}

}  // namespace

std::string safetensors_front(std::span<const StoredTensor> tensors) {
  Json header = Json::object();
  std::int64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::int64_t size = pp::bytes_of(tensor.type).value;
    header[tensor.name] = {{"dtype", tag_of(tensor.type.dtype)},
                           {"shape", tensor.type.shape},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + kSafetensorsPrefix - 1) / kSafetensorsPrefix * kSafetensorsPrefix, ' ');
  return length_bytes(text.size()) + text;
}

void write_safetensors(std::span<const StoredTensor> tensors,
                       const std::function<void(std::string_view)>& write) {
  for (const StoredTensor& tensor : tensors) {
    const auto size = static_cast<std::int64_t>(tensor.bytes.size());
    if (Bytes(size) == pp::bytes_of(tensor.type)) continue;
    throw Error(ErrorKind::internal,
                tensor.name + ": " + std::to_string(size) + " bytes for " + to_text(tensor.type.shape));
  }
  write(safetensors_front(tensors));
  for (const StoredTensor& tensor : tensors) write(tensor.bytes);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : content_(read_file(path, std::numeric_limits<std::size_t>::max())),
      tensors_(with_context(path.string(), [&] { return read_entries(content_); })) {}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace pp::run
