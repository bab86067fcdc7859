// One cast for all indices: numbers are signed in the documents and in arithmetic, containers count unsigned.
#pragma once

#include <concepts>
#include <cstddef>

namespace pp {

/// `i` as the index of a container; must not be negative.
template <std::integral Integer>
constexpr std::size_t at(Integer i) {
  return static_cast<std::size_t>(i);
}

}  // namespace pp
