// One cast for all indices: numbers are signed in the documents and in arithmetic, containers count unsigned.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace pp {

/// `i`, a number or an enumerator, as the index of a container; must not be negative.
template <class Integer>
requires std::integral<Integer> || std::is_enum_v<Integer>
constexpr std::size_t at(Integer i) { return static_cast<std::size_t>(i); }

}  // namespace pp
