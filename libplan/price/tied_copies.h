// Weights that layers of several stages share, kept as one copy per stage: every copy is updated with the sum
// of the gradients of all, so they stay equal.
#pragma once

#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// One parameter set and its copies.
struct TiedCopies {
  int owner = 0;            ///< the layer whose weights they are
  std::vector<int> stages;  ///< that hold a copy, ascending, at least two
};

/// Those of graph.shared whose layers stand in several stages, in that order. `stage_of` per layer.
std::vector<TiedCopies> tied_copies(const PlanGraph& graph, const std::vector<int>& stage_of);

/// Puts `ARg<k>` of every group that a worker holds a stage of in front of its first U, behind its AR. Finite
/// programs only. O(operations).
void add_tied_reductions(std::vector<WorkerProgram>& programs, const std::vector<TiedCopies>& copies,
                         const std::vector<std::vector<int>>& stage_workers);

}  // namespace pp::plan
