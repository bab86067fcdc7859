// One record of a CSV file, from JSON values.
#pragma once

#include <span>
#include <string>

#include "libprofile/core/json_reader.h"

namespace pp::plan {

/// Fields quoted as in RFC 4180 where needed, `\n` at the end; null is an empty field.
std::string csv_record(std::span<const Json> fields);

}  // namespace pp::plan
