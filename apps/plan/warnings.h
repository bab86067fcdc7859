// What is doubtful about a profile or a plan, said on stderr.
#pragma once

#include "libplan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan_tool {

/// One line for each way in which the profile is doubtful, whatever the number of places.
void warn_about(const Profile& profile);
/// Devices that say that they are others than the profiled one, whose speed they are planned at.
void warn_about(const Profile& profile, const Cluster& cluster);
/// Too few micro-batches for its stages; a stage that has next to no work.
void warn_about(const plan::Plan& plan);

}  // namespace pp::plan_tool
