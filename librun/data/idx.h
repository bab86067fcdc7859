// The IDX format of the MNIST files: two zero bytes, the element type, the number of dimensions, the dimensions
// as big-endian 32-bit numbers, then the elements, big-endian. Free of Torch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/model_graph.h"

namespace pp::run {

/// The values are the type bytes of the format.
enum class IdxType : std::uint8_t {
  uint8 = 0x08,
  int8 = 0x09,
  int16 = 0x0B,
  int32 = 0x0C,
  float32 = 0x0D,
  float64 = 0x0E
};

struct IdxHeader {
  IdxType type = IdxType::uint8;
  Shape shape;                     ///< the first dimension counts the samples
  std::uintmax_t data_offset = 0;  ///< bytes before the elements
  std::int64_t samples() const { return shape.front(); }
  Shape sample_shape() const { return Shape(shape.begin() + 1, shape.end()); }
  bool operator==(const IdxHeader&) const = default;
};

std::int64_t size_of(IdxType type);
constexpr bool is_integer(IdxType type) { return type != IdxType::float32 && type != IdxType::float64; }
/// Largest value of an integer type.
double maximum(IdxType type);

/// Reads the first bytes and checks them against the file's size; the elements stay on disk. Throws pp::Error
/// (data): `PATH: not an IDX file: ...`, `PATH: 100 bytes of elements, 784 expected for int8 [1, 28, 28]`.
IdxHeader read_idx_header(const std::filesystem::path& path);

/// The elements in the machine's byte order, row by row. Throws as above.
std::string read_idx_elements(const std::filesystem::path& path, const IdxHeader& header);

/// Header and elements as a file, for tests and converters; `elements` in the machine's byte order.
std::string idx_bytes(IdxType type, const Shape& shape, std::string_view elements);

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::IdxType> {
  static constexpr std::array table{
      std::pair{run::IdxType::uint8, "uint8"sv},     std::pair{run::IdxType::int8, "int8"sv},
      std::pair{run::IdxType::int16, "int16"sv},     std::pair{run::IdxType::int32, "int32"sv},
      std::pair{run::IdxType::float32, "float32"sv}, std::pair{run::IdxType::float64, "float64"sv}};
};
}  // namespace pp
