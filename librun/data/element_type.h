// The number types that data files hold. Free of Torch.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "libprofile/core/enum_names.h"

namespace pp::run {

enum class ElementType {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64
};

constexpr std::int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8:
    case ElementType::int8: return 1;
    case ElementType::uint16:
    case ElementType::int16:
    case ElementType::float16:
    case ElementType::bfloat16: return 2;
    case ElementType::uint32:
    case ElementType::int32:
    case ElementType::float32: return 4;
    case ElementType::int64:
    case ElementType::float64: return 8;
  }
  return 0;
}

/// The enumerators before float16.
constexpr bool is_integer(ElementType type) { return type < ElementType::float16; }

/// Largest value of an integer type.
constexpr std::int64_t maximum(ElementType type) {
  switch (type) {
    case ElementType::boolean: return 1;
    case ElementType::uint8: return std::numeric_limits<std::uint8_t>::max();
    case ElementType::int8: return std::numeric_limits<std::int8_t>::max();
    case ElementType::uint16: return std::numeric_limits<std::uint16_t>::max();
    case ElementType::int16: return std::numeric_limits<std::int16_t>::max();
    case ElementType::uint32: return std::numeric_limits<std::uint32_t>::max();
    case ElementType::int32: return std::numeric_limits<std::int32_t>::max();
    default: return std::numeric_limits<std::int64_t>::max();
  }
}

constexpr bool is_signed(ElementType type) {
  return type == ElementType::int8 || type == ElementType::int16 || type == ElementType::int32 ||
         type == ElementType::int64;
}

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::ElementType> {
  using enum run::ElementType;
  static constexpr std::array table{
      std::pair{boolean, "bool"sv},      std::pair{uint8, "uint8"sv},     std::pair{int8, "int8"sv},
      std::pair{uint16, "uint16"sv},     std::pair{int16, "int16"sv},     std::pair{uint32, "uint32"sv},
      std::pair{int32, "int32"sv},       std::pair{int64, "int64"sv},     std::pair{float16, "float16"sv},
      std::pair{bfloat16, "bfloat16"sv}, std::pair{float32, "float32"sv}, std::pair{float64, "float64"sv}};
};
}  // namespace pp
