// Content hashes of documents: `sha256:` and 64 hex digits (FIPS 180-4).
#pragma once

#include <string>
#include <string_view>

namespace pp {

std::string content_hash(std::string_view bytes);

}  // namespace pp
