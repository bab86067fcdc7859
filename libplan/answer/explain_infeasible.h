// Why nothing fits, and the smallest change that would.
#pragma once

#include "libplan/plan/plan.h"
#include "libplan/search/planner.h"

namespace pp::plan {

/// For a request whose search found nothing. Bisects the memory limit to the byte, with the exact memory of
/// plans whose stages the planner places and the simulated one of the others, and tries changes of the request,
/// each by the same search that planning uses.
/// Throws pp::Error (run) when the observer stops it before any attempt is known.
Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                              const NoPlan& attempt);

}  // namespace pp::plan
