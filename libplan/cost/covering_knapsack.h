// The covering knapsack: which items make up at least a number of bytes, in the least time.
// For the layers that a stage runs again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace pp::plan {

struct CoverItem {
  double seconds = 0;  ///< what taking it costs
  double bytes = 0;    ///< what it makes up, above 0
};

struct Cover {
  double seconds = std::numeric_limits<double>::infinity();  ///< infinity: all items together are too few
  std::vector<std::size_t> items;                            ///< ascending
};

/// The least seconds below `limit` over subsets of `items` that make up at least `bytes`; infinity when there
/// is none. Branch and bound on the fractional relaxation; equal items are told apart by their number only.
/// Exponential at worst: once `work`, from which it takes the items that it looks at, is used up, the best so
/// far stands, or the greedy one.
Cover cover_exactly(std::span<const CoverItem> items, double bytes, double limit, std::int64_t& work);
constexpr std::int64_t kCoverWork = 4'000'000;  ///< some hundredths of a second
inline Cover cover_exactly(std::span<const CoverItem> items, double bytes,
                           double limit = std::numeric_limits<double>::infinity()) {
  std::int64_t work = kCoverWork;
  return cover_exactly(items, bytes, limit, work);
}

/// The relaxation: the seconds if items could be taken in part; infinity when all are too few. `items` by
/// seconds per byte. O(items).
double cover_relaxed(std::span<const CoverItem> items, double bytes);

/// The same taken greedily by seconds per byte: never less, sometimes more.
Cover cover_greedily(std::span<const CoverItem> items, double bytes);

}  // namespace pp::plan
