// The table of operations as JSON: what `pp-profile models --ops --json` prints and the importer reads.
#pragma once

#include "libprofile/core/json_reader.h"

namespace pp {

/// One object per operation, sorted by name.
Json operations_json();

}  // namespace pp
