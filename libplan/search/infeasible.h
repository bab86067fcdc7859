// Why nothing fits, and the smallest change that would.
#pragma once

#include "libplan/cost/graph.h"
#include "libplan/search/joint.h"
#include "libplan/search/planner.h"

namespace pp::plan {

/// Throws pp::Error (run): the observer stopped the search before it found a plan.
[[noreturn]] void refuse_unfinished();

/// For a request whose search found nothing. Bisects the memory limit to the byte, with the exact memory of
/// plans whose stages the planner places and the simulated one of the others, and tries changes of the request,
/// each by the same search that planning uses.
/// Throws pp::Error (run) when the observer stops it before any attempt is known.
Infeasible explain_infeasible(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                              const PlanRequest& request, const SearchOutcome& outcome);

}  // namespace pp::plan
