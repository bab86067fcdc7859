// The synchronous objective J = load + base + sum: the largest load of a stage or cut over the steady part of a
// step, and the time one micro-batch takes through the pipeline and back, of which `base` is the part that no
// partition changes. A search minimises the sum under a falling bound on the loads.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// A partition and what it reaches: StageCost's largest load and sum.
struct Point {
  Partition partition;
  double load = std::numeric_limits<double>::infinity();
  double sum = std::numeric_limits<double>::infinity();
  bool feasible() const { return !partition.empty(); }
};

/// The point of least sum whose loads are all at most a limit; ties: fewest devices, then stages, then by first
/// cut and replicas.
struct PointTest {
  Point point;
  /// Infeasible: no partition has less load than this, the smallest that was refused.
  double next = std::numeric_limits<double>::infinity();
  bool feasible() const { return !point.partition.empty(); }
};

struct ParetoFront {
  double objective = std::numeric_limits<double>::infinity();  ///< the least load + base + sum
  std::vector<Point> points;                                   ///< that were met, loads falling
  bool feasible() const { return !points.empty(); }
};

/// A point with an objective of at most `most`; infeasible: there is none. `test` as of enumerate_points(); one
/// probe where nothing comes near.
PointTest point_within(double most, double base, const std::function<PointTest(double)>& test);

/// Exact: `least_load` is no more than the load of any partition in the same space (the nearer, the fewer
/// probes), `test(limit)` the point of least sum under a bound. Every round yields the next point, until none
/// can beat the best any more. No points when no objective is within `most`. Enumerating the bottleneck and
/// minimising the sum is Alpa's idea (Zheng et al., OSDI'22, inter-operator pass).
ParetoFront enumerate_points(double least_load, double base, const std::function<PointTest(double)>& test,
                             double most = std::numeric_limits<double>::infinity());

/// The same point of least objective without all the others: between two points whose loads and sums are known
/// nothing is looked for that the lower load and the lower sum say cannot win. Not feasible as above.
Point least_objective(double least_load, double base, const std::function<PointTest(double)>& test,
                      double most = std::numeric_limits<double>::infinity());

}  // namespace pp::plan
