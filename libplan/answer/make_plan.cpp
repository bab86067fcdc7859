#include "libplan/answer/make_plan.h"

#include <utility>

#include "libplan/answer/explain_infeasible.h"
#include "libplan/request/request.h"

namespace pp::plan {
namespace {

template <class Found>
std::variant<Found, Infeasible> or_why_not(std::variant<Found, NoPlan> found, const Profile& profile,
                                           const Cluster& cluster, const PlanRequest& request) {
  if (const auto* none = std::get_if<NoPlan>(&found))
    return explain_infeasible(profile, cluster, request, *none);
  return std::get<Found>(std::move(found));
}

}  // namespace

std::variant<Plan, Infeasible> make_plan(const Profile& profile, const Cluster& cluster,
                                         const PlanRequest& request) {
  const PlanRequest known = with_tied_weights(profile, cluster, request);
  return or_why_not(find_plan(profile, cluster, known), profile, cluster, known);
}

std::variant<RankedPlans, Infeasible> make_plans(const Profile& profile, const Cluster& cluster,
                                                 const PlanRequest& request) {
  const PlanRequest known = with_tied_weights(profile, cluster, request);
  return or_why_not(find_plans(profile, cluster, known), profile, cluster, known);
}

}  // namespace pp::plan
