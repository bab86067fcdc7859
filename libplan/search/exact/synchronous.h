// The synchronous objective J = theta + G: theta is the largest load of a stage or cut over the steady part of
// a step, G the time one micro-batch takes through the pipeline and back. Only G's cuts depend on the
// partition, so the search minimises the sum of their `fill` times under a falling bound on the loads.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// A partition with its load and the sum of `fill` over its cuts.
struct SynchronousPoint {
  Partition partition;
  double theta = 0;
  double fill = 0;
};

struct SynchronousResult {
  double objective = std::numeric_limits<double>::infinity();  ///< the least theta + base + fill
  std::vector<SynchronousPoint> points;  ///< the Pareto points that were met, theta falling
  bool feasible() const { return !points.empty(); }
};

/// The partition of least fill whose loads are all at most `limit`; ties: fewest devices, then stages, then by
/// first cut and replicas. `fill[k]` is the time added by boundary k (0 and N are not read).
struct FillTest {
  Partition partition;
  double theta = std::numeric_limits<double>::infinity();  ///< what it really reaches
  double fill = std::numeric_limits<double>::infinity();
  /// Infeasible: no partition has less load than this, infinity also when that is not known.
  double next = std::numeric_limits<double>::infinity();
  bool feasible() const { return !partition.empty(); }
};
/// O(layers * devices^2 * levels); memory is tested against the exact number of later devices.
FillTest least_fill(const SearchSpace& space, const StageCost& cost, std::span<const double> fill,
                    double limit);

/// Exact: `theta_least` is no more than the load of any partition in the same space (the nearer, the fewer
/// probes), `test(limit)` the partition of least fill under a bound; `base` the part of G that no partition
/// changes. Every round yields the next Pareto point, until none can beat the best any more. No points when no
/// objective is within `most`. Enumerating the bottleneck and minimising the sum is Alpa's idea (Zheng et al.,
/// OSDI'22, inter-operator pass).
SynchronousResult enumerate_points(double theta_least, double base, const std::function<FillTest(double)>& test,
                                   double most = std::numeric_limits<double>::infinity());

/// enumerate_points() over search_bottleneck() and least_fill().
SynchronousResult search_synchronous(const SearchSpace& space, const StageCost& cost,
                                     std::span<const double> fill, double base);

}  // namespace pp::plan
