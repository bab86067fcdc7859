// What a branching graph offers beyond its linear orders: partitions found over all its down-sets, and bounds
// that hold whatever the order.
#pragma once

#include <limits>
#include <vector>

#include "libplan/search/candidates/find_candidates.h"
#include "libplan/search/exact/lattice_search.h"

namespace pp::plan {

struct GraphCandidate {
  LinearPartition stages;
  double estimate = 0;  ///< the search's objective, as Candidate::estimate
};

struct GraphCandidateList {
  /// Pareto points of a synchronous search, the optimum of an asynchronous one. Whether they fit is tested on a
  /// lower bound of their memory: the simulator has the last word.
  std::vector<GraphCandidate> candidates;
  /// No partition of the graph, in any linear order, is faster; seconds as `estimate`, of steady steps.
  double bound = std::numeric_limits<double>::infinity();
};

/// `what.chain` and `what.bound_chain` are over the lattice (make_lattice_chain). Of the limits `near` and
/// `enough`.
GraphCandidateList find_graph_candidates(const SearchCase& what, const Lattice& lattice,
                                         const SearchSpace& space, int layers, const SearchLimits& limits);

/// A weaker bound of the same kind, from any one linear order: all work shared evenly, one micro-batch's way
/// through the pipeline, and each layer with the replicas that suit it best.
double order_free_bound(const SearchCase& what, const SearchSpace& space);

}  // namespace pp::plan
