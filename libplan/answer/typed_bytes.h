// Limits of memory as options take them.
#pragma once

#include <cstdint>
#include <string>

#include "libplan/request/plan_request.h"

namespace pp::plan {

/// As people type it and parse_bytes() reads it: `9MB`, `1.5GiB`, below 1 MB the digits alone. Rounded up to
/// two decimals where no unit takes it as it is.
std::string typed_bytes(std::int64_t bytes);

/// What a device has of which `limit` bytes may be used: what PlanRequest::reserve leaves free is added, unless
/// the request says the limit itself.
std::int64_t device_bytes(std::int64_t limit, const PlanRequest& request);

}  // namespace pp::plan
