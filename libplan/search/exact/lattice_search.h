// The exact searches of bottleneck.h and synchronous.h over all down-sets of a graph instead of one linear
// order. Stages of a Partition begin and end at sets of the lattice here; linear() names their layers.
#pragma once

#include <span>
#include <vector>

#include "libplan/cost/lattice.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/synchronous.h"

namespace pp::plan {

/// One probe: the stages of least fill (then fewest devices, then stages) whose loads are all at most `limit`,
/// and what test_bottleneck() and least_fill() say about it.
struct LatticeTest {
  Partition partition;  ///< empty: there is none
  double theta = std::numeric_limits<double>::infinity();
  double fill = std::numeric_limits<double>::infinity();
  double next = std::numeric_limits<double>::infinity();  ///< the smallest load that was refused
};
/// `fill[k]` is added by boundary k; empty: nothing. The space's cut_allowed is not read: make_lattice() leaves
/// out what may not be cut. O(pairs * replicas * labels); labels are the Pareto front of (devices, fill,
/// stages) behind a set, one without fill. After the down-set search of Tarnawski et al. (NeurIPS'20), with
/// replicas, and probing one limit instead of keeping a table of loads by devices.
LatticeTest test_lattice(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                         std::span<const double> fill, double limit);

/// The optimum over all linear orders.
BottleneckResult search_lattice_bottleneck(const Lattice& lattice, const SearchSpace& space,
                                           const StageCost& cost);
/// All Pareto points as search_synchronous() finds them.
SynchronousResult search_lattice_synchronous(const Lattice& lattice, const SearchSpace& space,
                                             const StageCost& cost, std::span<const double> fill, double base);

/// A linear order in which the stages are contiguous, and the stages in it.
struct LinearPartition {
  std::vector<int> order;
  Partition partition;
};
LinearPartition linear(const Lattice& lattice, const Partition& partition, int layers);

}  // namespace pp::plan
