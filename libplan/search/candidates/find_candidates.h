// Everything worth pricing for one chain (one layer order at one micro-batch size) under one schedule: all
// Pareto points of the search, the plan of the bound, data parallelism at every width, pipelines without
// replicas; then what the objective may have misjudged.
#pragma once

#include <limits>
#include <memory>
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

/// What the searches of a case minimise in `space`, and what no partition of it undercuts.
ChainCost objective_cost(const SearchCase& what, const SearchSpace& space);
ChainCost bound_cost(const SearchCase& what, const SearchSpace& space);

/// Both, each made when it is first used: they are as long as the layers and the devices. The case and the
/// space must outlive them.
class Costs {
 public:
  Costs(const SearchCase& what, const SearchSpace& space) : what_(what), space_(space) {}
  const ChainCost& objective();
  const ChainCost& bound();

 private:
  const SearchCase& what_;
  const SearchSpace& space_;
  std::unique_ptr<const ChainCost> objective_, bound_;
};

/// What no partition undercuts in any layer order, from any one of them: all work shared evenly, one
/// micro-batch's way through the pipeline, and each layer with the replicas that suit it best. Seconds per step
/// or update, of steady steps.
double order_free_bound(const SearchCase& what, const SearchSpace& space);

/// Partitions that keep to the memory limit; none when no objective is within `below`. `least`: the plan of the
/// bound, if it is known.
std::vector<Candidate> find_candidates(const SearchCase& what, const SearchSpace& space, Costs& costs,
                                       const Partition& least, double below);

/// What the objective may have misjudged: what is near its optimum, where the space is small; what less memory
/// and slower links would have given. Nothing whose bound is above `best`; no pains over what is estimated
/// above `below`.
std::vector<Candidate> find_misjudged(const SearchCase& what, const SearchSpace& space, Costs& costs,
                                      double best, double below);

/// What is found without a search that takes long: data parallelism and even stages.
std::vector<Candidate> find_seeds(const SearchCase& what, const SearchSpace& space, Costs& costs);
/// find_fitting().
std::vector<Candidate> find_anything(const SearchCase& what, const SearchSpace& space, Costs& costs);

/// Any partition that keeps to the limit, one of fewest devices; empty: there is none.
Partition find_fitting(const SearchCase& what, const SearchSpace& space);

}  // namespace pp::plan
