// The member "context" of every document: an object of strings.
#pragma once

#include "libprofile/core/context.h"
#include "libprofile/core/json_reader.h"

namespace pp {

/// Reads the member "context"; absent in files from people: empty. Throws as ObjectReader does.
Context read_context(ObjectReader& document);
Json context_json(const Context& context);

}  // namespace pp
