// What the readers of other planners' files share: layers that arrive in any order become a profile of opaque
// layers; values of JSON are checked as ObjectReader checks them, but unknown keys are left alone.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace pp::plan {

struct ForeignLayer {
  LayerProfile profile;     ///< with a point for each micro-batch size, the same of all layers
  std::set<int> producers;  ///< positions in the vector that holds this layer
};

/// The profile of `layers` in topological order, ties in the order given; device memory unknown, nothing in
/// `estimated`. `format` goes into the context. Throws pp::Error (data) for a cycle and
/// when there is no layer.
Profile foreign_profile(std::string_view name, std::string_view format,
                        const std::vector<ForeignLayer>& layers);

/// A time without spread.
TimeStat imported_time(Seconds time);

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
