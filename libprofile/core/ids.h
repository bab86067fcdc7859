// Names for positions in a plan. Separate types, so that a stage cannot be passed where a worker is meant.
#pragma once

#include <cstddef>

namespace pp {

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
