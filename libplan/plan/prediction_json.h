// The keys of a plan's `predicted` and `calibration`, and the values that documents of this library share.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "libplan/plan/plan.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// Throws pp::Error (data) with the key.
Prediction read_prediction(ObjectReader& reader);
Json to_json(const Prediction& prediction);

/// Throws pp::Error (data).
Calibration read_calibration(ObjectReader& reader);
Json to_json(const Calibration& calibration);

inline constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();

inline int small_integer(ObjectReader& reader, std::string_view key, std::int64_t min = 0) {
  return static_cast<int>(reader.integer(key, {.min = min, .max = kMaxInt}));
}
inline Seconds seconds(ObjectReader& reader, std::string_view key) { return Seconds(reader.number(key)); }
inline Bytes bytes(ObjectReader& reader, std::string_view key) { return Bytes(reader.integer(key)); }

}  // namespace pp::plan
