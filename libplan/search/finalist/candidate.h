// A partition that a search has found, and what the search says about it.
#pragma once

#include "libplan/cost/stage_cost.h"

namespace pp::plan {

/// Which search a plan comes from; it may have been improved since.
enum class Origin {
  points,         ///< the Pareto points of the objective, or its optimum
  least_bound,    ///< the plan of the bound
  data_parallel,  ///< one stage
  even_stages,    ///< stages without replicas that take as equal times as they can
  straight,       ///< the best without replicas
  anything,       ///< any partition that fits
  less_memory,    ///< the points of a machine with less memory
  near_optima,    ///< partitions near the best objective
  device_list,    ///< the points on an ordered list of devices
};

struct Candidate {
  Partition partition;
  double estimate = 0;  ///< the search's objective, seconds per step or update
  double bound = 0;     ///< this partition cannot be faster; seconds as `estimate`
  Origin origin = Origin::points;
};

}  // namespace pp::plan
