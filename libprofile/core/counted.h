// Numbers of things in sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pp {

/// `1 stage`, `2 epochs`, `4 micro-batches`: for nouns that take s or es.
inline std::string counted(std::int64_t count, std::string_view noun) {
  const bool hisses =
      noun.ends_with("s") || noun.ends_with("sh") || noun.ends_with("tch") || noun.ends_with("x");
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : hisses ? "es" : "s");
}

}  // namespace pp
