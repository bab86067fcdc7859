// Values that the documents of this library have in common.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"

namespace pp::plan {

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

inline int small_integer(ObjectReader& reader, std::string_view key, std::int64_t min = 0) {
  return static_cast<int>(reader.integer(key, {.min = min, .max = kMaxInt}));
}
inline Seconds seconds(ObjectReader& reader, std::string_view key) { return Seconds(reader.number(key)); }
inline Bytes bytes(ObjectReader& reader, std::string_view key) { return Bytes(reader.integer(key)); }

}  // namespace pp::plan
