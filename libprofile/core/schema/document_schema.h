// JSON Schemas of the documents, so that editors complete and people validate what they write. They say which
// keys there are, of which types and in which ranges; what takes several keys to say (edges, shapes, sums) only
// the readers check.
#pragma once

#include <span>
#include <string_view>

#include "libprofile/core/json_reader.h"

namespace pp {

/// `cluster`, `device`, `model`, `plan`, `profile`.
std::span<const std::string_view> schema_names();

/// Draft 7, complete: what it refers to stands in its `definitions`. Throws pp::Error (usage) for another name.
Json document_schema(std::string_view name);

namespace detail {

/// The objects of some documents by name, each as a list of keys: `name text, devices size, cores? [count]`. A
/// key with ? may be left out; types are text, flag, number, positive, share, count, size, integer, object,
/// any, 'a|b' (one of these texts), another object's name, [T], a list of T, and T|U, one of several types.
struct ObjectRow {
  std::string_view name;
  std::string_view keys;
};
std::span<const ObjectRow> object_rows();

/// Of `text, [count], 'a|b', time|number`, as above.
Json type_schema(std::string_view type);
/// No key but these.
Json object_schema(std::string_view keys);

/// What the table of operations says: layers, losses, calls.
void add_model_definitions(Json& definitions);

}  // namespace detail

}  // namespace pp
