// Reading JSON that is not ours: checked values as ObjectReader gives them, but keys we do not know are left
// alone.
#pragma once

#include <functional>
#include <string>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// Each element, an object, of the member array.
void for_each_object(ObjectReader& reader, std::string_view key,
                     const std::function<void(ObjectReader&)>& read);

/// An id: a whole number or text, as text.
std::string read_id(ObjectReader& reader, std::string_view key);

/// true or false, or a number: 0 is false. False where there is none.
bool read_flag(ObjectReader& reader, std::string_view key);

/// Bytes that may be written as a decimal number, rounded. Refuses what is negative or beyond 2^62.
Bytes read_bytes(ObjectReader& reader, std::string_view key);

}  // namespace pp::plan
