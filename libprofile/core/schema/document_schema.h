// JSON Schemas of the documents, so that editors complete and people validate what they write. They say which
// keys there are, of which types and in which ranges; what takes several keys to say (edges, shapes, sums) only
// the readers check.
#pragma once

#include <span>
#include <string_view>

#include "libprofile/core/fields.h"

namespace pp {

/// `checkpoint`, `cluster`, ...: the documents of the tools, in the order of the alphabet.
std::span<const std::string_view> schema_names();

/// The version that the tools write; they read all from 1 on. Throws as document_schema().
int newest_version(std::string_view document);

/// Draft 7, complete: what it refers to stands in its `definitions`. That of `metrics` is of each line of such
/// a file. `lists`: of the documents whose keys are field lists. Throws pp::Error (usage) for another name.
Json document_schema(std::string_view name, std::span<const Keys> lists);

/// The lists of this library's documents.
Keys cluster_keys();
Keys trainer_keys();
Keys profile_keys();

namespace detail {

/// Types in words: text, flag, null, signed (any number), number (from 0), positive, share, integer, count
/// (from 0), size (from 1), object, any, 'a|b' (one of these texts), another object's name, [T], a list of T,
/// {T}, an object of any keys whose values are T, and T|U, one of several types.
Json type_schema(std::string_view type);
/// `name text, devices size, cores? [count]`: no key but these; one with ? may be left out.
Json object_schema(std::string_view keys);

/// What the table of operations says: layers, losses, calls.
void add_model_definitions(Json& definitions);

}  // namespace detail

}  // namespace pp
