// The front door: a plan, or why there is none and the smallest change that would give one; and from a plan to
// the next one, for the same training on the devices that are left of its machine.
#pragma once

#include <variant>

#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libplan/search/planner.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// find_plan(), or why there is none.
std::variant<Plan, Infeasible> make_plan(const Profile& profile, const Cluster& cluster,
                                         const PlanRequest& request);
/// find_plans(), or why there is none.
std::variant<RankedPlans, Infeasible> make_plans(const Profile& profile, const Cluster& cluster,
                                                 const PlanRequest& request);

/// The request that the plan was made by: what the plan says itself, and every option of its context
/// (request/request.h). What holds for one number of devices only is left open: stages, cuts, replicas,
/// windows by stage. A plan without replicas asks for one without, whose sums have the same order. Programs of
/// a file were made for that plan, so `auto` stands in their place. Throws pp::Error (data) for an entry that
/// is no value of its option.
PlanRequest request_of(const Plan& plan);

/// The best plan on `left` by `request`, which is request_of(before) or a change of it. The first of these that
/// gives one: the schedule and the micro-batches of `before`; its micro-batches, with which the weights keep
/// their bits; any. What calibrated `before` corrects the profile here, too; speeds of devices are those of
/// `left`. Throws pp::Error (data) where `before` was not made from `profile`, (usage) where no such
/// request can be answered.
std::variant<Plan, Infeasible> plan_again(const Plan& before, const Profile& profile, const Cluster& left,
                                          const PlanRequest& request);

}  // namespace pp::plan
