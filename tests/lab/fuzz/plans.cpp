// fuzz_plans: random planning problems, each through one of the cross-checks of the planner
// (tests/libplan/search/cross_checks.h).
#include "tests/lab/fuzz/campaign.h"
#include "tests/libplan/search/cross_checks.h"

int main(int argc, char** argv) {
  using namespace pp;
  fuzz::Campaign campaign;
  campaign.name = "fuzz_plans";
  for (const plan::test::CrossCheck& check : plan::test::kCrossChecks)
    campaign.categories.emplace_back(check.name);
  campaign.run = [](fuzz::Case& one) {
    const std::size_t which = one.seed() % plan::test::kCrossChecks.size();
    const plan::test::CrossCheck& check = plan::test::kCrossChecks[which];
    one.doing(std::string(check.name));
    plan::test::Random random(one.seed());
    return fuzz::Result{which, check.run(random)};
  };
  return fuzz::run_campaign(campaign, argc, argv);
}
