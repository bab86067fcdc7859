// Which layers of a stage to recompute so that it fits: a covering knapsack.
#pragma once

#include <vector>

namespace pp::plan {

struct RecomputeItem {
  double seconds = 0;  ///< what recomputing adds
  double bytes = 0;    ///< what it saves, above 0
};

/// Least seconds over subsets of `items` that save at least `bytes`; infinity when all together do not. Branch
/// and bound on the fractional relaxation; equal items are told apart by their number only.
double recompute_exactly(std::vector<RecomputeItem> items, double bytes);

/// The same taken greedily by seconds per byte: never less, sometimes more.
double recompute_greedily(std::vector<RecomputeItem> items, double bytes);

}  // namespace pp::plan
