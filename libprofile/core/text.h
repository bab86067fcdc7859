// Words and sentences: the name that a mistyped word was meant to be, numbers of things, UTF-8 that is cut
// between characters, and the mark that some editors put in front of a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pp {

/// `H100` as `h100`.
std::string in_small_letters(std::string_view text);

/// By the number of wrong, missing, superfluous or swapped letters, or as its beginning, in capital letters or
/// not; empty when none is near.
std::string nearest_name(std::string_view word, std::span<const std::string> names);

/// `unknown name "gpip"; did you mean gpipe? Use one of naive, gpipe, ..`.
std::string unknown_name(std::string_view word, std::span<const std::string> names,
                         std::string_view kind = "name");

/// `text` behind the byte order mark of UTF-8. Throws pp::Error (data) for one of UTF-16.
std::string_view without_byte_order_mark(std::string_view text);

/// `1 stage`, `2 epochs`, `4 micro-batches`: for nouns that take s or es.
inline std::string counted(std::int64_t count, std::string_view noun) {
  const bool hisses =
      noun.ends_with("s") || noun.ends_with("sh") || noun.ends_with("tch") || noun.ends_with("x");
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : hisses ? "es" : "s");
}

/// The longest beginning of whole characters that has at most `limit` bytes.
inline std::string_view beginning(std::string_view text, std::size_t limit) {
  if (limit >= text.size()) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0U) == 0x80U) --limit;
  return text.substr(0, limit);
}

}  // namespace pp
