// The front door: a plan, or why there is none and the smallest change that would give one.
#pragma once

#include <variant>

#include "libplan/infeasible.h"
#include "libplan/search/planner.h"

namespace pp::plan {

/// find_plan(), or why there is none.
std::variant<Plan, Infeasible> make_plan(const Profile& profile, const Cluster& cluster,
                                         const PlanRequest& request);
/// find_plans(), or why there is none.
std::variant<RankedPlans, Infeasible> make_plans(const Profile& profile, const Cluster& cluster,
                                                 const PlanRequest& request);

}  // namespace pp::plan
