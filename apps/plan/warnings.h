// What is doubtful about a profile or a plan, said on stderr.
#pragma once

#include "libplan/plan.h"
#include "libprofile/core/profile.h"

namespace pp::plan_tool {

/// One line for each way in which the profile is doubtful, whatever the number of places.
void warn_about(const Profile& profile);
/// Too few micro-batches for its stages.
void warn_about(const plan::Plan& plan);

}  // namespace pp::plan_tool
