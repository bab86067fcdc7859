// JSON Schemas of the documents, so that editors complete and people validate what they write. They say which
// keys there are, of which types and in which ranges; what takes several keys to say (edges, shapes, sums) only
// the readers check.
#pragma once

#include <array>
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
Keys model_keys();
Keys aten_call_keys();
std::array<Keys, 3> formula_keys();

namespace detail {

/// Those of the model; what the table of operations says of layers, losses and calls.
void add_model_definitions(Json& definitions);

}  // namespace detail

}  // namespace pp
