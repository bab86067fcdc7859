// Documents that come with the tools, in share/pp/ beside bin/: a name in place of a path.
#pragma once

#include <string>

namespace pp::cli {

/// `typed` where it is a path: it has a `/` or a `.`, is `-`, or names a file. Else the document of that name
/// in share/pp/`folder`: `h100` of devices. Throws pp::Error (usage) with `option` and the names that there
/// are.
std::string shipped_document(const std::string& typed, const std::string& folder, const std::string& option);

}  // namespace pp::cli
