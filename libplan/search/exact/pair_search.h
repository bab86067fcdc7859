// The slow exact search: every (start, end, replicas) is looked at that the loads and the lower bound of the
// memory leave, which grow with the stage; the exact memory need not, and may depend on the whole pipeline
// behind a stage. Decides where the fast searches, which know the lower bound only, return a partition that
// does not fit after all; and is their oracle in tests.
#pragma once

#include <span>

#include "libplan/cost/stage_cost.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/synchronous.h"

namespace pp::plan {

/// One probe as test_bottleneck(), with the exact memory. At most O(layers^2 * devices * labels), near the
/// optimum far less: front_needs() leaves few ends. Labels is the size of the Pareto front of (devices,
/// demand), rarely above 3. `memory` null: cost.fits decides.
BottleneckTest test_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                          double limit);
BottleneckResult search_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                              double lower_bound = 0);

/// One probe as least_fill() of synchronous.h, with the exact memory.
FillTest least_fill_pairs(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory,
                          std::span<const double> fill, double limit);

/// All Pareto points as search_synchronous() finds them, and maybe some of less load, with the exact memory.
/// `lower_bound` as for search_pairs(), `most` as for enumerate_points().
SynchronousResult search_synchronous_pairs(const SearchSpace& space, const StageCost& cost,
                                           const ExactMemory* memory, std::span<const double> fill, double base,
                                           double lower_bound = 0,
                                           double most = std::numeric_limits<double>::infinity());

}  // namespace pp::plan
