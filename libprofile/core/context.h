// Where a document comes from (its member "context"): tool, version, host, device, libraries, threads, time.
// Never changes what a tool does with the document, except for warnings.
#pragma once

#include <map>
#include <string>

#include "libprofile/core/json_reader.h"

namespace pp {

/// Free text by key, in key order in the file.
using Context = std::map<std::string, std::string>;

/// Reads the member "context"; absent in files from people: empty. Throws as ObjectReader does.
Context read_context(ObjectReader& document);
Json context_json(const Context& context);

}  // namespace pp
