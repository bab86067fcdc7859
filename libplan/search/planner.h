// The planner: profile, cluster and request in; a plan, or that none fits, out. Searches every layer order,
// micro-batch size and schedule the request allows and prices the finalists with the simulator (README.md of
// libplan explains how).
#pragma once

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// No plan keeps to the limits of the request.
struct NoPlan {
  std::optional<Bytes> short_by;    ///< of schedules that place their stages: what the best attempt lacks
  std::string_view short_schedule;  ///< that of the best attempt
};

/// Seconds to plan are small: O(orders * sizes * schedules * layers * devices^2). Same input, same plan, bit
/// for bit. Throws pp::Error: usage for a request that contradicts itself, the profile or the cluster (`stages
/// = 9 exceeds the number of layers, 6`), data for a profile or cluster that cannot be used; run when the
/// observer stops it before any plan is found.
std::variant<Plan, NoPlan> find_plan(const Profile& profile, const Cluster& cluster,
                                     const PlanRequest& request);

/// The best plan, and its alternatives as plans of their own: in their order, without certificate and
/// alternatives.
struct RankedPlans {
  Plan best;
  std::vector<Plan> others;
};
/// Whether the alternatives are only listed in the plan.
enum class Others { listed, in_full };
/// find_plan() with the alternatives in full.
std::variant<RankedPlans, NoPlan> find_plans(const Profile& profile, const Cluster& cluster,
                                             const PlanRequest& request, Others others = Others::in_full);

/// Throws pp::Error (run): the observer stopped the search before it found a plan.
[[noreturn]] void refuse_unfinished();

}  // namespace pp::plan
