// All partitions that a search's objective cannot tell far from the best: the objective is not the simulated
// step, so any of them may be the plan.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// Every partition with largest load + sum <= `limit` on devices that are alike, later boundaries first.
/// Nothing when there are more than `most`, or finding them takes too many stages that lead nowhere.
std::optional<std::vector<Partition>> partitions_within(const SearchSpace& space, const StageCost& cost,
                                                        double limit, std::size_t most);

/// The same for the largest limit in (`least`, `limit`] of which there are few enough, by bisection in ten
/// tries.
std::vector<Partition> near_optima(const SearchSpace& space, const StageCost& cost, double least, double limit,
                                   std::size_t most);

}  // namespace pp::plan
