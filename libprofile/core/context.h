// Where a document comes from: tool, version, host, device, libraries, threads, time. Never changes what a tool
// does with the document, except for warnings.
#pragma once

#include <map>
#include <string>

namespace pp {

/// Free text by key, in key order in the file.
using Context = std::map<std::string, std::string>;

}  // namespace pp
