// Texts of UTF-8 that are cut between characters, not within one.
#pragma once

#include <cstddef>
#include <string_view>

namespace pp {

/// The longest beginning of whole characters that has at most `limit` bytes.
inline std::string_view beginning(std::string_view text, std::size_t limit) {
  if (limit >= text.size()) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0U) == 0x80U) --limit;
  return text.substr(0, limit);
}

}  // namespace pp
