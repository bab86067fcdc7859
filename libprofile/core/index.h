// Indices. Numbers are signed in the documents and in arithmetic, containers count unsigned; names for
// positions in a plan are separate types, so that a stage cannot be passed where a worker is meant.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

namespace pp {

/// `i`, a number or an enumerator, as the index of a container; must not be negative.
template <class Integer>
requires std::integral<Integer> || std::is_enum_v<Integer>
constexpr std::size_t at(Integer i) { return static_cast<std::size_t>(i); }

enum class StageId : int {};
enum class WorkerId : int {};
enum class DeviceId : int {};

template <class Id>
constexpr std::size_t index(Id id) {
  return static_cast<std::size_t>(id);
}
template <class Id>
constexpr int number(Id id) {
  return static_cast<int>(id);
}

}  // namespace pp
