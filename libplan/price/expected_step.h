// The expected step of a plan: its operations vary as the profile's percentiles say.
#pragma once

#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Sets the spread of the plan's stages, and from it the expected step (simulate/expected_step.h), which
/// is left out where that says nothing. Without samples in the profile nothing changes. The spreads of
/// a stage's layers are independent: their squares add up. `plan` was made from `profile` by `request`.
void add_expected_step(Plan& plan, const Profile& profile, const PlanRequest& request);

}  // namespace pp::plan
