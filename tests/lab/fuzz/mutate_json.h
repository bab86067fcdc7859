// Mutations of JSON documents that keep their structure in mind: what comes out is still JSON, and mostly still
// close to the document.
#pragma once

#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {

/// One change somewhere: a key or element dropped, repeated, renamed, exchanged with or copied over another;
/// a number, a name or a type replaced; an array in another order; a nest of arrays.
void mutate_json(Random& random, Json& document);

/// One change that documents of tools often survive: a number a little larger or smaller, an array in another
/// order, two values of one type exchanged, one of the names that the documents know.
void mutate_json_gently(Random& random, Json& document);

}  // namespace pp::fuzz
