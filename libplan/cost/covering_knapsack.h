// The covering knapsack: which items to take so that they make up at least so many bytes, in the least time.
// For the layers that a stage runs again.
#pragma once

#include <cstddef>
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
/// Exponential at worst: after 200,000 nodes the best so far stands, which is then no worse than the greedy
/// one.
Cover cover_exactly(std::span<const CoverItem> items, double bytes,
                    double limit = std::numeric_limits<double>::infinity());

/// The same taken greedily by seconds per byte: never less, sometimes more.
Cover cover_greedily(std::span<const CoverItem> items, double bytes);

}  // namespace pp::plan
