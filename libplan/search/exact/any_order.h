// The bottleneck search of bottleneck.h over the down-sets of a graph in place of one linear order: what it
// reaches no layer order undercuts. Boundaries of its stages are sets of the lattice.
#pragma once

#include <vector>

#include "libplan/cost/lattice.h"
#include "libplan/search/exact/bottleneck.h"

namespace pp::plan {

/// As test_bottleneck(), on devices that are alike; `cost` is of the lattice's chain. The space's cut_allowed
/// is not read: make_lattice() leaves out what may not be cut. O(sets * levels * replicas * (log waists + sets
/// between two waists)); all sets behind one where the load may fall. After the down-set search of Tarnawski et
/// al. (NeurIPS'20), with replicas, and probing one limit instead of keeping a table of loads by devices.
BottleneckTest test_any_order(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                              double limit);

/// The least load over all linear orders, and bottleneck_bound() of them.
BottleneckResult search_any_order(const Lattice& lattice, const SearchSpace& space, const StageCost& cost);
double any_order_bound(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                       double lower_bound, double enough);

}  // namespace pp::plan
