// Which member of a group owns which part of a vector that all of them have. Free of Torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pp::run {

/// Elements [begin, end) of the vector, and the place of their owner among the members.
struct Slice {
  std::size_t owner = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

/// One slice for each member, of a vector of `length` elements.
inline std::vector<Slice> equal_slices(std::int64_t length, std::size_t members) {
  const auto border = [&](std::size_t i) {
    return static_cast<std::int64_t>(i) * length / static_cast<std::int64_t>(members);
  };
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < members; ++i) slices.push_back({i, border(i), border(i + 1)});
  return slices;
}

/// What of them lies in [begin, end), counted from there. In their order, empty ones left out.
inline std::vector<Slice> slices_within(std::span<const Slice> slices, std::int64_t begin, std::int64_t end) {
  std::vector<Slice> inside;
  for (const Slice& slice : slices) {
    const std::int64_t first = std::max(slice.begin, begin), last = std::min(slice.end, end);
    if (first < last) inside.push_back({slice.owner, first - begin, last - begin});
  }
  return inside;
}

}  // namespace pp::run
