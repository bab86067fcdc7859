// The exact flat bottleneck search: splits layers into stages with replicas, on devices that are alike, so that
// the most loaded stage or cut is as light as possible. Every probe runs from the back, so that memory, which
// depends on the devices of later stages, can be tested on the way.
#pragma once

#include <functional>
#include <limits>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

struct BottleneckResult {
  Partition partition;  ///< empty: nothing fits
  double value = std::numeric_limits<double>::infinity();
  int tests = 0;
  bool feasible() const { return !partition.empty(); }
};

/// One probe: the partition of fewest devices (then stages, then by first cut and replicas, then by the next
/// stage's) whose stages and cuts are all at most `limit`; `value` is what it really reaches. If there is none,
/// `next` is the smallest load that was refused: no partition reaches less. O(layers * devices * levels) time,
/// amortised.
struct BottleneckTest {
  Partition partition;
  double value = std::numeric_limits<double>::infinity();
  double next = std::numeric_limits<double>::infinity();
  bool feasible() const { return !partition.empty(); }
};
BottleneckTest test_bottleneck(const SearchSpace& space, const StageCost& cost, double limit);

/// The optimum, bit for bit, not within a tolerance: probes move the lower bound to the smallest refused load
/// and the upper one to the load reached, both from one finite set. Among optimal partitions the tie rule of
/// test_bottleneck(). `lower_bound` must hold for rounded doubles too; 0 always does. About 25 probes for 1000
/// layers. After Pinar and Aykanat (JPDC 2004) for the exact bisection; with replicas and memory.
BottleneckResult search_bottleneck(const SearchSpace& space, const StageCost& cost, double lower_bound = 0);

/// A lower bound of every partition's load: the optimum where that is below `enough`, else any that is not; one
/// probe then.
double bottleneck_bound(const SearchSpace& space, const StageCost& cost, double enough);

/// The bisections themselves over any probe with the meaning of test_bottleneck().
BottleneckResult bisect_bottleneck(const std::function<BottleneckTest(double limit)>& test, double lower_bound);
double bisect_bound(const std::function<BottleneckTest(double limit)>& test, double lower_bound, double enough);

}  // namespace pp::plan
