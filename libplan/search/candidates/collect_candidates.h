// Everything worth pricing: the candidates of all cases of a request, from its layer orders; and what no plan
// can beat.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "libplan/search/candidates/find_candidates.h"
#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// A case of stages with any replicas, but for its devices, which are all alike.
struct FreeCase {
  const ScheduleRow* schedule = nullptr;
  RecomputeMode recompute = RecomputeMode::never;
  bool sharded = false;
  MemoryLimit limit;
  std::vector<int> order, sizes;
  auto operator<=>(const FreeCase&) const = default;
};
/// Cases of which nothing fits on this number of devices, nor then on fewer.
using NothingFits = std::map<FreeCase, int>;

/// What plans on this machine and on larger ones have come to.
struct Known {
  std::map<const ScheduleRow*, double>
      steps{};  ///< of the best plan of each schedule, by which plans are ranked
  double far = std::numeric_limits<double>::infinity();  ///< Shortlist::far()
  NothingFits nothing_fits{};
};

struct Collected {
  std::vector<Finalist> finalists;  ///< not simulated; empty: nothing fits
  /// Seconds per step (asynchronous: per update) that no plan of the searched family is below on these devices
  /// or fewer; with a free layer order none in any order. Without schedules that place their stages.
  double bound = std::numeric_limits<double>::infinity();
  double placed_bound = std::numeric_limits<double>::infinity();  ///< of those, on exactly these devices
  std::string bound_holds;  ///< `any layer order`: what the bound is over; empty: the searched orders
  double floor = std::numeric_limits<double>::infinity();  ///< the same of all plans on these devices or fewer
  int orders = 0;                                          ///< distinct layer orders of one case
  int batches = 0;
  int schedules = 0;
  int placed_schedules = 0;      ///< of them: those that place their stages themselves
  bool equal_replicas = false;   ///< alone were searched for some of the others: a large machine
  bool exact = true;             ///< of the others every partition was searched, whatever devices it gets
  bool cut_short = false;        ///< by the observer; `bound` and `floor` hold all the same
  bool only_placed = true;       ///< no schedule leaves the placement to the planner
  std::optional<Error> refusal;  ///< the first of a schedule that places its stages
  NothingFits nothing_fits;      ///< what was known, and what was found
};

/// Left out are cases that a bound above the best plan of their schedule says cannot give a better one, each as
/// if its schedule were searched alone; and on machines that are not small those whose objective comes nowhere
/// near the least of their rivals, or of another layer order is no less. Throws what for_each_case() throws.
Collected collect_candidates(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                             const PlanRequest& request, Known known, Depth depth);

/// The pipelines of 64 more orders of a small branching model, for schedules that fit in none of the usual
/// ones. Throws what for_each_case() throws.
std::vector<Finalist> collect_drawn(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                                    const PlanRequest& request);

}  // namespace pp::plan
