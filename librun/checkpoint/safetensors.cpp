#include "librun/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"
#include "librun/data/safetensors_header.h"

namespace pp::run {

namespace {

constexpr std::array kDTypes{std::pair{DType::float32, "F32"sv},   std::pair{DType::float64, "F64"sv},
                             std::pair{DType::bfloat16, "BF16"sv}, std::pair{DType::int64, "I64"sv},
                             std::pair{DType::uint8, "U8"sv},      std::pair{DType::boolean, "BOOL"sv}};

std::string_view tag_of(DType dtype) {
  return std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& row) { return row.first == dtype; })
      ->second;
}

constexpr auto kHalf = "F16"sv;

DType dtype_of(const StoredRange& range) {
  if (range.dtype == kHalf) return DType::float32;
  for (const auto& [dtype, name] : kDTypes) {
    if (name == range.dtype) return dtype;
  }
  throw Error(ErrorKind::data, "/" + range.name + "/dtype: \"" + range.dtype +
                                   "\" is none of F32, F64, BF16, F16, I64, U8, BOOL");
}

// IEEE 754: sign, 5 bits of exponent, 10 of fraction. Normal numbers move into the wider exponent, whose bias
// is larger by 112; of subnormal ones an integer takes the fraction.
float widened(std::uint16_t half) {
  const std::uint32_t size = half & 0x7fffU, sign = std::uint32_t{half & 0x8000U} << 16;
  const std::uint32_t bias = size < 0x7c00 ? 112 : 224;  // infinities and NaNs have the largest exponent
  const std::uint32_t normal = (size << 13) + (bias << 23);
  const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-24F);
  return std::bit_cast<float>((size < 0x400 ? subnormal : normal) | sign);
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift & 0xff));
  return bytes;
}

}  // namespace

std::string safetensors_front(std::span<const StoredTensor> tensors, const Metadata& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
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
                       const std::function<void(std::string_view)>& write, const Metadata& metadata) {
  for (const StoredTensor& tensor : tensors) {
    const auto size = static_cast<std::int64_t>(tensor.bytes.size());
    if (Bytes(size) == pp::bytes_of(tensor.type)) continue;
    throw Error(ErrorKind::internal,
                tensor.name + ": " + std::to_string(size) + " bytes for " + to_text(tensor.type.shape));
  }
  write(safetensors_front(tensors, metadata));
  for (const StoredTensor& tensor : tensors) write(tensor.bytes);
}

SafetensorsFile::SafetensorsFile(const std::vector<std::filesystem::path>& parts, const ReadFiles& read) {
  for (const std::filesystem::path& path : parts) {
    const auto found = read.find(path);
    read_.push_back(found == read.end() ? ReadFile{} : found->second);
    if (found == read.end()) {
      parts_.push_back(std::make_unique<FileBytes>(path));
    } else {
      parts_.push_back(std::make_unique<ReadBytes>(path, found->second));
    }
    with_context(path.string(), [&] { add(*parts_.back()); });
  }
}

void SafetensorsFile::add(const ByteSource& file) {
  SafetensorsHeader header = read_safetensors_header(file);
  metadata_.merge(header.metadata);
  for (StoredRange& range : header.ranges) {
    const DType dtype = dtype_of(range);
    const bool half = range.dtype == kHalf;
    require_elements(range, half ? 2 : size_of(dtype), half ? "float16" : name_of(dtype));
    if (!places_.emplace(range.name, tensors_.size()).second)
      throw Error(ErrorKind::data, "has the tensor \"" + range.name + "\", which another part has, too");
    tensors_.push_back({std::move(range.name),
                        {std::move(range.shape), dtype},
                        parts_.size() - 1,
                        header.data_offset + range.begin,
                        half});
  }
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second];
}

void SafetensorsFile::read(const Entry& entry, std::span<char> out) const {
  if (!entry.half) return parts_[entry.part]->read(entry.offset, out);
  const std::span<char> stored = out.last(out.size() / 2);
  parts_[entry.part]->read(entry.offset, stored);
  // From the front: what is written never passes what is still to be read.
  std::array<std::uint16_t, 1024> halves{};
  std::array<float, halves.size()> values{};
  for (std::size_t first = 0; first < out.size() / 4; first += halves.size()) {
    const std::size_t count = std::min(halves.size(), out.size() / 4 - first);
    std::memcpy(halves.data(), stored.data() + 2 * first, 2 * count);
    std::ranges::transform(halves, values.begin(), widened);
    std::memcpy(out.data() + 4 * first, values.data(), 4 * count);
  }
}

std::shared_ptr<const char> SafetensorsFile::held(const Entry& entry) const {
  const ReadFile& file = read_[entry.part];
  if (!file.bytes || entry.half) return nullptr;
  return {file.bytes, file.bytes.get() + entry.offset};
}

std::string SafetensorsFile::read(const Entry& entry) const {
  std::string bytes(static_cast<std::size_t>(pp::bytes_of(entry.type).value), '\0');
  read(entry, bytes);
  return bytes;
}

}  // namespace pp::run
