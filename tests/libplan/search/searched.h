// What a search says before a certificate is made of it: its bound is not clamped to the plan's step there, and
// a wrong one is not an error yet.
#pragma once

#include "libplan/request/request.h"
#include "libplan/search/best_first.h"
#include "libplan/search/planner.h"

namespace pp::plan::test {

/// As find_plan() searches. Throws what it throws for the request.
inline SearchOutcome searched(const Profile& profile, const Cluster& cluster, PlanRequest request) {
  const PlanGraph graph = planned_graph(profile, request);
  check_request(profile, cluster, graph, request);
  request.all_reduce_overlap = all_reduce_overlap(cluster, request);
  return search_plans(profile, cluster, graph, request);
}

/// Seconds per step of the plan of a search; infinity: nothing fits.
inline double step_of(const SearchOutcome& outcome) {
  return outcome.ranked.empty() ? std::numeric_limits<double>::infinity()
                                : outcome.ranked.front().prediction.step.count();
}

}  // namespace pp::plan::test
