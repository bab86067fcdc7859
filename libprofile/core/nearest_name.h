// The name that a mistyped word was meant to be.
#pragma once

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

}  // namespace pp
