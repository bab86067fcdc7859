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
  int ranks = 1;  ///< that it was placed on when it was chosen
};

/// Throws as place_ranks().
PlacedPlan placed(plan::Plan plan, const std::string& file, const std::vector<Host>& hosts);

/// Whether the hosts have room for it, on as many ranks as before.
bool fits(const PlacedPlan& plan, const std::vector<Host>& hosts);

struct Replanning {
  PlacedPlan first;                               ///< that the job was launched with
  std::optional<Profile> profile = std::nullopt;  ///< of which it was made; none: nothing can be planned anew
  int spare = 0;                                  ///< hosts that new plans leave idle
};

/// The first plan where it fits; `current` where that does; else the best one for what is left (plan_again()),
/// without a file. `gone`: devices_left(). Infeasible: there is none, also for want of a profile. Throws
/// pp::Error (usage) where no such request can be answered.
std::variant<PlacedPlan, plan::Infeasible> next_plan(const Replanning& job, const PlacedPlan& current,
                                                     const std::vector<Host>& hosts, int gone);

/// The first plan where it fits, else the best one for these hosts. As next_plan().
std::variant<PlacedPlan, plan::Infeasible> larger_plan(const Replanning& job, const std::vector<Host>& hosts,
                                                       int gone);

/// `1f1b, layers per stage 2|3, replicas 1-1, 16 samples in 4 micro-batches`
std::string plan_line(const plan::Plan& plan);

/// What a new plan promises beside the one before: step time, the largest peak, and what becomes of the bits.
std::string promise_line(const plan::Plan& plan, const plan::Plan& before);

}  // namespace pp::run_tool
