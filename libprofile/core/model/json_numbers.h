// Numbers that JSON cannot write: {"number": "-inf"}.
#pragma once

#include <optional>

#include "libprofile/core/json_reader.h"

namespace pp::detail {

/// A number, or such an object; none: it is neither.
std::optional<double> number_of(const Json& json);
Json number_json(double value);

}  // namespace pp::detail
