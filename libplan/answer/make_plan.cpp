#include "libplan/answer/make_plan.h"

#include <utility>

#include "libplan/answer/explain_infeasible.h"
#include "libplan/request/request.h"

namespace pp::plan {
namespace {

template <class Found>
std::variant<Found, Infeasible> or_why_not(std::variant<Found, NoPlan> found, const Profile& profile,
                                           const Cluster& cluster, const PlanRequest& asked) {
  const auto* none = std::get_if<NoPlan>(&found);
  if (none == nullptr) return std::get<Found>(std::move(found));
  const PlanRequest request = with_tied_weights(profile, cluster, asked);
  if (!request.even_nodes) return explain_infeasible(profile, cluster, request, *none);
  PlanRequest uneven = request;  // the searches that say what is short take any number of devices
  uneven.even_nodes = false;
  if (std::holds_alternative<NoPlan>(find_plan(profile, cluster, uneven)))
    return explain_infeasible(profile, cluster, uneven, *none);
  Infeasible only_uneven;
  only_uneven.reason = "no plan uses equally many devices of each node, as --for " + request.trainer +
                       " starts them; plan with a mini-batch that has more divisors, or with more memory";
  return only_uneven;
}

}  // namespace

std::variant<Plan, Infeasible> make_plan(const Profile& profile, const Cluster& cluster,
                                         const PlanRequest& request) {
  return or_why_not(find_plan(profile, cluster, request), profile, cluster, request);
}

std::variant<RankedPlans, Infeasible> make_plans(const Profile& profile, const Cluster& cluster,
                                                 const PlanRequest& request) {
  return or_why_not(find_plans(profile, cluster, request), profile, cluster, request);
}

}  // namespace pp::plan
