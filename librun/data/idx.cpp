#include "librun/data/idx.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <limits>
#include <system_error>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

constexpr int kMaxDimensions = 8;
// Elements of one file: far above any data set that fits into memory, far below an overflow of the product.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& message) {
  throw Error(ErrorKind::data, path.string() + ": " + message);
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string read_bytes(std::ifstream& file, const std::filesystem::path& path, std::size_t count) {
  std::string bytes(count, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  if (static_cast<std::size_t>(file.gcount()) != count)
    refuse(path, "not an IDX file: it ends inside the header");
  return bytes;
}

IdxType element_type(const std::filesystem::path& path, unsigned char code) {
  for (const auto& [type, name] : EnumNames<IdxType>::table) {
    if (static_cast<unsigned char>(type) == code) return type;
  }
  refuse(path, "not an IDX file: element type " + std::to_string(code) + " is none of 8, 9, 11, 12, 13, 14");
}

// From or to big-endian: the same reversal.
void swap_bytes(std::string& elements, std::int64_t size) {
  if (std::endian::native == std::endian::big || size == 1) return;
  for (auto at = elements.begin(); at != elements.end(); at += size) std::reverse(at, at + size);
}

void check_size(const std::filesystem::path& path, const IdxHeader& header) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : header.shape) {
    if (dimension == 0) refuse(path, "the shape " + to_text(header.shape) + " has no elements");
    if (dimension > kMaxElements / elements) {
      refuse(path, "the shape " + to_text(header.shape) + " has more than 2^40 elements");
    }
    elements *= dimension;
  }
  const auto expected = static_cast<std::uintmax_t>(elements * size_of(header.type));
  const std::uintmax_t found = std::filesystem::file_size(path) - header.data_offset;
  if (found == expected) return;
  refuse(path, std::to_string(found) + " bytes of elements, " + std::to_string(expected) + " expected for " +
                   std::string(name_of(header.type)) + " " + to_text(header.shape));
}

}  // namespace

std::int64_t size_of(IdxType type) {
  switch (type) {
    case IdxType::uint8:
    case IdxType::int8: return 1;
    case IdxType::int16: return 2;
    case IdxType::int32:
    case IdxType::float32: return 4;
    case IdxType::float64: return 8;
  }
  return 0;
}

double maximum(IdxType type) {
  switch (type) {
    case IdxType::int8: return std::numeric_limits<std::int8_t>::max();
    case IdxType::int16: return std::numeric_limits<std::int16_t>::max();
    case IdxType::int32: return std::numeric_limits<std::int32_t>::max();
    default: return std::numeric_limits<std::uint8_t>::max();
  }
}

IdxHeader read_idx_header(const std::filesystem::path& path) {
  std::error_code reason;
  if (!std::filesystem::is_regular_file(path, reason)) refuse(path, "no such file");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(path, "cannot be read");
  const std::string magic = read_bytes(file, path, 4);
  if (magic[0] != 0 || magic[1] != 0) refuse(path, "not an IDX file: the first two bytes are not zero");
  IdxHeader header;
  header.type = element_type(path, static_cast<unsigned char>(magic[2]));
  const int dimensions = static_cast<unsigned char>(magic[3]);
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    refuse(path, "not an IDX file: " + std::to_string(dimensions) + " dimensions, 1 to 8 are allowed");
  }
  for (int i = 0; i < dimensions; ++i) header.shape.push_back(big_endian(read_bytes(file, path, 4)));
  header.data_offset = 4 + 4 * static_cast<std::uintmax_t>(dimensions);
  check_size(path, header);
  return header;
}

std::string read_idx_elements(const std::filesystem::path& path, const IdxHeader& header) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(header.data_offset));
  std::string elements(static_cast<std::size_t>(element_count(header.shape) * size_of(header.type)), '\0');
  file.read(elements.data(), static_cast<std::streamsize>(elements.size()));
  if (static_cast<std::size_t>(file.gcount()) != elements.size()) refuse(path, "changed while it was read");
  swap_bytes(elements, size_of(header.type));
  return elements;
}

std::string idx_bytes(IdxType type, const Shape& shape, std::string_view elements) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(shape.size())};
  for (const std::int64_t dimension : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dimension >> shift & 0xff));
  }
  std::string data(elements);
  swap_bytes(data, size_of(type));
  return bytes + data;
}

}  // namespace pp::run
