// Which plan a launched training goes on with, on the hosts that are there.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/run/hosts.h"
#include "libplan/infeasible.h"
#include "libplan/plan.h"
#include "libprofile/core/profile.h"

namespace pp::run_tool {

/// A plan with its file, which all hosts can read.
struct PlacedPlan {
  plan::Plan plan;
  std::string file;
  int ranks = 1;                  ///< that it was placed on when it was chosen
  std::vector<int> devices = {};  ///< positions of its devices among those of the first plan; empty: it is that
};

/// Throws as place_ranks().
PlacedPlan placed(plan::Plan plan, const std::string& file, const std::vector<Host>& hosts);

/// Whether the hosts have room for it, on as many ranks as before.
bool fits(const PlacedPlan& plan, const std::vector<Host>& hosts);

struct Replanning {
  PlacedPlan first;                               ///< that the job was launched with
  std::optional<Profile> profile = std::nullopt;  ///< of which it was made; none: nothing can be planned anew
  int spare = 0;                                  ///< hosts that new plans leave idle
  /// Of the first plan's devices, as they were measured since; empty: as that plan has them.
  std::vector<double> speeds = {};
};

/// The best plan for the first one's devices at these positions, at their speeds (plan_again()). Throws
/// pp::Error (usage) where no such request can be answered.
std::variant<plan::Plan, plan::Infeasible> plan_for(const Replanning& job, const std::vector<int>& positions);

/// The first plan where it fits; `current` where that does; else the best one for what is left (plan_for()),
/// without a file. Where speeds were measured the first plan is for another machine. `gone`: devices_left().
/// Infeasible: there is none, also for want of a profile. Throws
/// pp::Error (usage) where no such request can be answered.
std::variant<PlacedPlan, plan::Infeasible> next_plan(const Replanning& job, const PlacedPlan& current,
                                                     const std::vector<Host>& hosts, int gone);

/// The first plan where it fits, else the best one for these hosts. As next_plan().
std::variant<PlacedPlan, plan::Infeasible> larger_plan(const Replanning& job, const std::vector<Host>& hosts,
                                                       int gone);

/// `1f1b, layers per stage 2|3, replicas 1-1, 16 samples in 4 micro-batches`
std::string plan_line(const plan::Plan& plan);

/// What a new plan promises in place of steps of `before` (0: not known): step time, the largest peak, and what
/// becomes of the bits of `old`.
std::string promise_line(const plan::Plan& plan, const plan::Plan& old, Seconds before);

}  // namespace pp::run_tool
