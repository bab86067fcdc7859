// Validation by somebody else's JSON Schema library.
#pragma once

#include <string>
#include <string_view>

#include "libprofile/core/json_reader.h"

namespace pp::test {

/// What the schema of that document (`model`, `plan`) has against it; empty: nothing.
std::string schema_error(std::string_view document, const Json& json);

}  // namespace pp::test
