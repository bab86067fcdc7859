// How much of a set of streams shows all that they ever do: what check_plan() reads, and what the search asks
// before it chooses replicas.
#pragma once

#include <optional>
#include <vector>

#include "libplan/schedule/schedule.h"

namespace pp::plan {

struct StreamLength {
  int micro_batches = 0;
  bool stretch = false;  ///< it may end within a round
};

/// Micro-batches after which streams have shown all that they ever do: past the longest prologue and then for a
/// few rounds in which every worker begins its body anew. Where replicas take turns, every stage does with
/// micro-batch m + 1 what it does with m, so a stretch of a round that is too long is enough. `streams`: of the
/// workers; `stage_workers`: the positions there of each stage's replicas. Nothing: the turns do not meet
/// within kOperationLimit micro-batches, or that length has more operations.
std::optional<StreamLength> stream_length(const std::vector<const Stream*>& streams,
                                          const std::vector<std::vector<int>>& stage_workers, int per_update,
                                          WeightPolicy policy);

}  // namespace pp::plan
