// The same cores as devices of several sizes, or the same GPUs in tensor groups of several degrees, each with
// its profile: on which of these machines the best plan is.
#pragma once

#include <span>
#include <string>
#include <variant>

#include "libplan/infeasible.h"
#include "libplan/search/planner.h"

namespace pp::plan {

/// The best plans for one of the machines, or why it has none.
struct MachinePlans {
  int devices = 1;
  int cores_per_device = 1;  ///< 0: GPUs
  std::string profile_hash;
  std::variant<RankedPlans, Infeasible> found;
  int tensor_degree = 1;
};

/// The plans of the machine whose best step is the least; of equals the first. Of several it says so in
/// Plan::machines, and the fastest `top` alternatives of all are listed. Infeasible, as the first, when no
/// machine has a plan.
std::variant<RankedPlans, Infeasible> choose_machine(std::span<const MachinePlans> machines, int top);

}  // namespace pp::plan
