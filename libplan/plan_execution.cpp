#include "libplan/plan_execution.h"

namespace pp::plan {

std::string execution_refusal(const Plan& plan) {
  const WeightPolicy policy = plan.schedule.weight_policy;
  if (policy == WeightPolicy::flush || policy == WeightPolicy::stash) return {};
  return "pp-run executes weight policies flush and stash, this plan has " + std::string(name_of(policy)) +
         ": it can be simulated; plan with --schedule pipedream to run asynchronously";
}

}  // namespace pp::plan
