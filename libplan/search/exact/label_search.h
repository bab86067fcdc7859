// The exact search over prefixes of a chain, from the back, under any StageCost: on devices that are alike or
// on an ordered list of them, with a bound of the memory or the exact one. Every stage [begin, end) that keeps
// to a limit puts a label in front of the labels of its end; labels that no partition is better off with are
// dropped.
//
//                layers   0 1 | 2 3 4 | 5        labels at boundary 2: (devices, demand, sum) of the suffixes
//                         relax  <----- known     2 3 4 | 5 that none beats
//
// With a bound of the memory alone, loads and memory only grow towards the front: an end that fails once is
// gone for good, and a queue slides over the rest. The exact memory need not grow, so every end is looked at.
#pragma once

#include <limits>

#include "libplan/cost/stage_cost.h"
#include "libplan/search/exact/bottleneck.h"
#include "libplan/search/exact/pareto.h"

namespace pp::plan {

/// Whether passages and fills are added up, or the loads alone count.
enum class Sums { count, ignore };

/// One probe. Without `memory` cost.fits() decides what fits, in O(layers * devices^2 * levels), amortised;
/// with it O(layers^2 * devices^2 * levels) on a list, O(layers^2 * devices * labels) on devices that are
/// alike, and near the optimum far less: front_needs() leaves few ends. Labels is the size of the Pareto front
/// of (devices, demand, sum), rarely above 3.
PointTest test_labels(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory, double limit,
                      Sums sums = Sums::count);

/// The least largest load, bit for bit. Probes ask for the exact memory only where the optimum without it does
/// not fit, and then only if some load is within `most`; none, if not. On devices that are alike the optimum
/// without it is that of search_bottleneck().
BottleneckResult search_least_load(const SearchSpace& space, const StageCost& cost,
                                   const ExactMemory* memory = nullptr,
                                   double most = std::numeric_limits<double>::infinity());

/// The Pareto points of (load, sum) that can have the least objective; none when it is above `most`. Probes ask
/// for the exact memory from the first point on that does not fit without it.
ParetoFront search_points(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory = nullptr,
                          double most = std::numeric_limits<double>::infinity());

/// The one of them with the least objective.
Point search_best_point(const SearchSpace& space, const StageCost& cost, const ExactMemory* memory = nullptr,
                        double most = std::numeric_limits<double>::infinity());

}  // namespace pp::plan
