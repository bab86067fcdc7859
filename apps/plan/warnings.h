// What is doubtful about a profile or a plan, said on stderr.
#pragma once

#include <span>

#include "apps/plan/planning_cases.h"
#include "libplan/plan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan_tool {

/// One line for each way in which a profile or what it is planned for is doubtful, whatever the number of
/// places; one for all that are estimated.
void warn_about(std::span<const PlanningCase> cases);
/// Devices that say that they are others than the profiled one, whose speed they are planned at.
void warn_about(const Profile& profile, const Cluster& cluster);
/// Too few micro-batches for its stages; a stage that has next to no work.
void warn_about(const plan::Plan& plan);

}  // namespace pp::plan_tool
