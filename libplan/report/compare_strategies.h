// Our plan beside those of baselines and other planners, all priced alike.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "libplan/peers/strategy.h"

namespace pp::plan {

struct Comparison {
  Strategy strategy = Strategy::automatic;
  std::variant<Plan, std::string> result;  ///< the plan, or why there is none
};

/// Every strategy but manual, ours first, each priced by the same simulator. A baseline
/// that does not keep to the request has no plan. Throws as make_plan() does for our own.
std::vector<Comparison> compare_strategies(const Profile& profile, const Cluster& cluster,
                                           const PlanRequest& request);

}  // namespace pp::plan
