// Everything worth pricing for one chain (one layer order at one micro-batch size) under one schedule: all
// Pareto points of the search, the plan of the bound, data parallelism at every width, pipelines without
// replicas.
#pragma once

#include <limits>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/chain_cost.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/search/finalist/candidate.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// What one search is about. Chains and memory must outlive it.
struct SearchCase {
  const Chain& chain;
  const Chain& bound_chain;  ///< no micro-batch of the step costs less; the same chain when all are equal
  const StageMemory& memory;
  bool synchronous = true;
  MicroBatches micro_batches;
  double all_reduce_overlap = 0;
  Links links;       ///< for the objective
  Links best_links;  ///< for the bound
  const Cluster& cluster;
};

struct CandidateList {
  std::vector<Candidate> candidates;  ///< all keep to the memory limit
  /// No partition of this chain in this space, with this memory, is faster: seconds as `estimate`, of steady
  /// steps.
  double bound = std::numeric_limits<double>::infinity();
  bool nothing_fits = false;  ///< no partition of the space does
  bool cut_short = false;     ///< SearchSpace::stop ended it; the bound holds all the same
};

/// `inherited`: also what less memory and slower links would have given, and what is near the optimum: the
/// objective of a search is not the simulated step.
/// `balanced`: only the partitions with the least bottleneck, for schedules that place their stages: those are
/// improved by simulation anyway.
/// `bound`: no candidates.
enum class Depth { plain, inherited, balanced, bound };

/// What the searches of a case minimise in `space`, and what no partition of it undercuts.
ChainCost objective_cost(const SearchCase& what, const SearchSpace& space);
ChainCost bound_cost(const SearchCase& what, const SearchSpace& space);

/// What no partition undercuts in any layer order, from any one of them: all work shared evenly, one
/// micro-batch's way through the pipeline, and each layer with the replicas that suit it best. Seconds as
/// `estimate`, of steady steps.
double order_free_bound(const SearchCase& what, const SearchSpace& space);

struct SearchLimits {
  double slowest = std::numeric_limits<double>::infinity();  ///< look for nothing whose bound is above
  double most = std::numeric_limits<double>::infinity();     ///< take no pains over what is estimated above
  double near = std::numeric_limits<double>::infinity();     ///< look for nothing that is estimated above
  double enough = std::numeric_limits<double>::infinity();   ///< a bound that is not below it may be any such
  Depth depth = Depth::plain;
};

/// Stopped before it found anything, it still looks for one partition that fits.
/// A result of the fast searches that does not fit exactly is replaced by that of the search with the exact
/// memory.
CandidateList find_candidates(const SearchCase& what, const SearchSpace& space,
                              const SearchLimits& limits = {});

/// Any partition that keeps to the limit, one of fewest devices; empty: there is none.
Partition find_fitting(const SearchCase& what, const SearchSpace& space);

}  // namespace pp::plan
