// What would help: changes of the machine or the request, each planned again in full.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/search/planner.h"

namespace pp::plan {

/// A change and the best plan under it.
struct WhatIf {
  std::string change;           ///< `one more device (3 in all)`
  std::optional<Seconds> step;  ///< nothing: no plan fits any more
  std::string plan;             ///< plan_summary()
  bool left_out = false;        ///< the observer of the request stopped it: nothing is known
  bool operator==(const WhatIf&) const = default;
};

/// `1f1b, layers 7|5 on replicas 1-1, 4 micro-batches`; with recompute also `, running again all|2`
std::string plan_summary(const Plan& plan);
std::string plan_summary(const Alternative& other);

/// The step of the best plan when devices have room for everything, where that is faster and does not fit them;
/// nothing otherwise, when memory is not limited, and when the observer of the request stops the search. Costs
/// one make_plan().
std::optional<Seconds> step_without_memory_limit(const Plan& plan, const Profile& profile,
                                                 const Cluster& cluster, const PlanRequest& request);

/// The step of the best plan when what stages keep may be computed again, where memory limits `plan` and that
/// makes it at least 5 % faster; nothing otherwise, and when the observer of the request stops the search.
/// Costs one make_plan() unless the step is near what no plan without a limit can beat.
std::optional<Seconds> step_with_recompute(const Plan& plan, const Profile& profile, const Cluster& cluster,
                                           const PlanRequest& request);

enum class MemoryLimits { no, yes };
/// Where data parallelism stands beside a plan of several stages: one stage, replicated on all devices.
struct DataParallelism {
  std::optional<Seconds> step;  ///< nothing: it does not fit
  Seconds links{};              ///< StepParts::links: how much faster it would be if its all-reduce were hidden
  std::string why_not;          ///< one sentence where it does not fit
  bool operator==(const DataParallelism&) const = default;
};
/// Nothing where the plan is that, where the request does not admit one stage, and when the observer of the
/// request stops the search. Costs one make_plan().
std::optional<DataParallelism> data_parallelism(const Plan& plan, const Profile& profile,
                                                const Cluster& cluster, const PlanRequest& request);

/// Whether the observer of the request leaves time to plan for `cluster`.
bool has_time(const PlanRequest& request, const Cluster& cluster);

/// One more device like the last, twice the bandwidth of every level, 10 % more memory (only where memory
/// limits the plan), twice the micro-batches; changes that the request or the profile does not admit are left
/// out. Costs one make_plan() each.
std::vector<WhatIf> what_if(const Plan& plan, const Profile& profile, const Cluster& cluster,
                            const PlanRequest& request, MemoryLimits memory);

/// `other` as a plan of its own; nothing when the request cannot say it (a layer order of its own, stages
/// placed by the schedule).
std::optional<Plan> plan_of(const Alternative& other, const Profile& profile, const Cluster& cluster,
                            const PlanRequest& request);

}  // namespace pp::plan
