// Changes of a request without a plan under which there is one, and limits of memory as options take them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libplan/search/best_first.h"
#include "libplan/search/candidates/cases.h"

namespace pp::plan {

/// Of a device: no limit. Of an attempt: there is none.
inline constexpr std::int64_t kNoBytes = std::numeric_limits<std::int64_t>::max();

/// What is planned, or a change of it. All must outlive it.
struct Problem {
  const Profile& profile;
  const Cluster& cluster;
  const PlanGraph& graph;
  const PlanRequest& request;

  Problem with(const PlanRequest& changed) const { return {profile, cluster, graph, changed}; }
  Problem on(const Cluster& other) const { return {profile, other, graph, request}; }
  SearchOutcome search() const { return search_plans(profile, cluster, graph, request); }
  void each_case(const std::function<void(const PlanCase&)>& visit) const {
    for_each_case(profile, cluster, graph, request, [&](PlanCase one) {
      one.space.stop.goes_on = [&] { return goes_on(request, progress()); };
      visit(one);
    });
  }
  SearchProgress progress() const { return {static_cast<int>(cluster.devices.size()), {}}; }
};

/// A partition of this case that keeps to `bytes` per device; empty: none.
Partition fitting(const PlanCase& one, const Problem& problem, std::int64_t bytes);

/// Every kind of change that was seen to help by itself: copies of shared weights, micro-batches, schedule,
/// recompute; else devices, or memory. Of `none` it reads the smallest limit.
void add_remedy(const Problem& problem, Infeasible& none);

/// As people type it and parse_bytes() reads it: `9MB`, `1.5GiB`, below 1 MB the digits alone. Rounded up to
/// two decimals where no unit takes it as it is.
std::string typed_bytes(std::int64_t bytes);

/// What a device has of which `limit` bytes may be used: what PlanRequest::reserve leaves free is added, unless
/// the request says the limit itself.
std::int64_t device_bytes(std::int64_t limit, const PlanRequest& request);

}  // namespace pp::plan
