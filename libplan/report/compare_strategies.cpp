#include "libplan/report/compare_strategies.h"

#include "libplan/answer/make_plan.h"

namespace pp::plan {

std::vector<Comparison> compare_strategies(const Profile& profile, const Cluster& cluster,
                                           const PlanRequest& request) {
  const auto priced = [&](Strategy strategy) -> std::variant<Plan, std::string> {
    const auto result = make_plan(profile, cluster, narrowed(profile, cluster, request, strategy));
    if (const auto* none = std::get_if<Infeasible>(&result)) return none->reason;
    return std::get<Plan>(result);
  };
  std::vector<Comparison> rows{{Strategy::automatic, priced(Strategy::automatic)}};
  for (const auto& [strategy, text] : EnumNames<Strategy>::table) {
    if (strategy == Strategy::automatic || strategy == Strategy::manual) continue;
    try {
      rows.push_back({strategy, priced(strategy)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      rows.push_back({strategy, std::string(error.what())});
    }
  }
  return rows;
}

}  // namespace pp::plan
