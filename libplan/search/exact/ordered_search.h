// The exact search on an ordered list of devices: speeds, memory and links differ from position to position,
// and a stage is priced on the very devices it gets. Position 0 serves the last layers; a partition uses the
// first devices of the list, all of them or fewer.
#pragma once

#include <limits>

#include "libplan/cost/ordered_cost.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/synchronous.h"

namespace pp::plan {

/// One probe: among the partitions whose stages and cuts are all at most `limit`, the one of least sum (passage
/// of the stages, fill of the cuts), then of fewest devices and stages. If there is none, `next` is the
/// smallest load that was refused: no partition reaches less.
struct OrderedTest {
  Partition partition;
  double value = std::numeric_limits<double>::infinity();  ///< the largest load it has
  double sum = std::numeric_limits<double>::infinity();
  double next = std::numeric_limits<double>::infinity();
  bool feasible() const { return !partition.empty(); }
};

/// O(layers * devices^2 * levels), amortised. With `memory` it decides what fits instead of the cost, and every
/// end of a stage is looked at: O(layers^2 * devices^2 * levels).
OrderedTest test_ordered(const SearchSpace& space, const OrderedCost& cost, const OrderedMemory* memory,
                         double limit);

/// The least largest load, bit for bit.
BottleneckResult search_ordered(const SearchSpace& space, const OrderedCost& cost,
                                const OrderedMemory* memory = nullptr);

/// The Pareto points of (largest load, sum) that can have the least objective, load + sum; `fill` of a point is
/// its sum beyond `base`, which no partition undercuts.
SynchronousResult search_ordered_synchronous(const SearchSpace& space, const OrderedCost& cost,
                                             const OrderedMemory* memory, double base);

double ordered_value(const Partition& partition, int layers, const OrderedCost& cost);
double ordered_sum(const Partition& partition, const OrderedCost& cost);

}  // namespace pp::plan
