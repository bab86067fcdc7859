// The exact searches of bottleneck.h and label_search.h over all down-sets of a graph instead of one linear
// order. Stages of a Partition begin and end at sets of the lattice here; linear() names their layers.
#pragma once

#include <vector>

#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/pareto.h"
#include "tests/libplan/search/lattice.h"

namespace pp::plan {

/// One probe, as test_labels() on devices that are alike and with their bound of the memory. The space's
/// cut_allowed is not read: make_lattice() leaves out what may not be cut. O(pairs * replicas * labels); labels
/// are the Pareto front of (devices, sum, stages) behind a set, one without sums. After the down-set search of
/// Tarnawski et al. (NeurIPS'20), with replicas, and probing one limit instead of keeping a table of loads by
/// devices.
PointTest test_lattice(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, double limit);

/// The optimum over all linear orders.
BottleneckResult search_lattice_bottleneck(const Lattice& lattice, const SearchSpace& space,
                                           const StageCost& cost);
/// As bottleneck_bound().
double lattice_bound(const Lattice& lattice, const SearchSpace& space, const StageCost& cost, double enough);
/// The Pareto points as search_points() finds them; none when no objective is within `most`.
ParetoFront search_lattice_points(const Lattice& lattice, const SearchSpace& space, const StageCost& cost,
                                  double most = std::numeric_limits<double>::infinity());

/// A linear order in which the stages are contiguous, and the stages in it.
struct LinearPartition {
  std::vector<int> order;
  Partition partition;
};
LinearPartition linear(const Lattice& lattice, const Partition& partition, int layers);

}  // namespace pp::plan
