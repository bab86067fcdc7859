#include "libplan/report/what_if.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "libplan/answer/make_plan.h"
#include "libplan/cost/constants.h"
#include "libplan/cost/stage_memory.h"
#include "libplan/peers/strategy.h"
#include "libplan/plan/programs.h"
#include "libplan/report/throughput.h"
#include "libplan/request/machine.h"
#include "libplan/request/request.h"
#include "libplan/search/candidates/open_case.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

/// Throws what make_plan() throws. Cut short it is not the best: ask has_time() behind it.
std::optional<Plan> best_plan(const Profile& profile, const Cluster& cluster, PlanRequest request) {
  request.top = 0;
  request.force_units = true;  // units were checked when the plan was made
  auto result = make_plan(profile, cluster, request);
  if (std::holds_alternative<Infeasible>(result)) return std::nullopt;
  return std::get<Plan>(std::move(result));
}

Bytes scaled(Bytes bytes, double factor) {
  constexpr double kMost = 9e18;
  return Bytes(static_cast<std::int64_t>(std::min(static_cast<double>(bytes.value) * factor, kMost)));
}

/// Numbers between separators: `7|5`.
std::vector<int> numbers_in(const std::string& text) {
  std::vector<int> numbers;
  const char* const end = text.data() + text.size();
  for (const char* begin = text.data(); begin < end; ++begin) {
    int& value = numbers.emplace_back();
    begin = std::from_chars(begin, end, value).ptr;
  }
  return numbers;
}

std::string summary(const std::string& schedule, const std::string& stages, const std::string& replicas,
                    int micro_batches, const std::string& recompute) {
  return schedule + ", layers " + stages + " on replicas " + replicas + ", " +
         counted(micro_batches, "micro-batch") + (recompute.empty() ? "" : ", running again " + recompute);
}

bool is_limited(const Cluster& cluster, const PlanRequest& request) {
  return request.memory_limit ||
         std::ranges::any_of(cluster.devices, [](const Device& device) { return device.memory > Bytes(0); });
}

std::pair<Cluster, PlanRequest> without_limits(Cluster cluster, PlanRequest request) {
  request.memory_limit.reset();
  for (Device& device : cluster.devices) device.memory = Bytes(0);
  return {std::move(cluster), std::move(request)};
}

/// The best plan of the changed request, if it takes at most this `share` of the step of `plan`.
std::optional<Plan> faster_plan(const Plan& plan, const Profile& profile, const Cluster& cluster,
                                const PlanRequest& request, double share) {
  if (!has_time(request, cluster)) return std::nullopt;
  std::optional<Plan> best;
  try {
    best = best_plan(profile, cluster, request);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
  }
  if (!best || !has_time(request, cluster) || best->predicted.step >= share * plan.predicted.step)
    return std::nullopt;
  return best;
}

/// Whether every device has room for its workers, and for those of the same hardware.
bool has_room(const Plan& plan, const Cluster& cluster, const PlanRequest& request) {
  return std::ranges::all_of(cluster.devices, [&](const Device& device) {
    std::int64_t bytes = request.context_bytes.value;
    for (std::size_t w = 0; w < plan.workers.size(); ++w) {
      if (share_memory(device, cluster.devices[index(plan.workers[w].device)]))
        bytes += plan.predicted.workers[w].memory.peak.value;
    }
    return bytes <= usable_bytes(device, request);
  });
}

/// Plans the changes, in the order they are added.
class Changes {
 public:
  explicit Changes(const Profile& profile) : profile_(profile) {}

  void add(std::string change, const Cluster& cluster, const PlanRequest& request) {
    WhatIf one{std::move(change), {}, {}};
    one.left_out = !has_time(request, cluster);
    try {
      if (!one.left_out) plan(one, cluster, request);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      one.left_out = error.kind() == ErrorKind::run;
      if (!one.left_out) return;  // refused: not a change that is open to the user
    }
    list_.push_back(std::move(one));
  }
  std::vector<WhatIf> list() && { return std::move(list_); }

 private:
  void plan(WhatIf& one, const Cluster& cluster, const PlanRequest& request) const {
    const std::optional<Plan> best = best_plan(profile_, cluster, request);
    one.left_out = !has_time(request, cluster);
    if (!best || one.left_out) return;
    one.step = best->predicted.step;
    one.plan = plan_summary(*best);
  }

  const Profile& profile_;
  std::vector<WhatIf> list_;
};

}  // namespace

std::optional<DataParallelism> data_parallelism(const Plan& plan, const Profile& profile,
                                                const Cluster& cluster, const PlanRequest& request) {
  if (plan.stages.size() == 1 || !has_time(request, cluster)) return std::nullopt;
  try {
    PlanRequest alone = narrowed(profile, cluster, request, Strategy::data_parallel);
    alone.top = 0;
    alone.force_units = true;  // units were checked when the plan was made
    const auto found = make_plan(profile, cluster, alone);
    if (!has_time(request, cluster)) return std::nullopt;
    if (const auto* none = std::get_if<Infeasible>(&found)) {
      if (none->short_by <= Bytes(0)) return std::nullopt;
      return DataParallelism{.step = {}, .why_not = none->reason};
    }
    const Plan& best = std::get<Plan>(found);
    return DataParallelism{best.predicted.step, step_parts(best).links, ""};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return std::nullopt;
  }
}

bool has_time(const PlanRequest& request, const Cluster& cluster) {
  return goes_on(request, {static_cast<int>(cluster.devices.size()), {}});
}

std::string plan_summary(const Plan& plan) {
  return summary(plan.schedule.name, stages_text(plan), replicas_text(plan), plan.training.micro_batches,
                 recompute_text(plan));
}

std::string plan_summary(const Alternative& other) {
  const std::string text =
      summary(other.schedule, other.stages, other.replicas, other.micro_batches, other.recompute);
  if (other.tensor_degree > 0) {
    return text + " of tensor degree " + std::to_string(other.tensor_degree) +
           (other.context_degree > 1 ? ", context degree " + std::to_string(other.context_degree) : "") +
           (other.expert_degree > 1 ? ", expert degree " + std::to_string(other.expert_degree) : "") +
           (other.shard_degree > 1 ? ", shard degree " + std::to_string(other.shard_degree) : "");
  }
  if (other.cores_per_device == 0) return text;
  return text + " on devices of " + counted(other.cores_per_device, "core");
}

std::optional<Seconds> step_without_memory_limit(const Plan& plan, const Profile& profile,
                                                 const Cluster& cluster, const PlanRequest& request) {
  if (!is_limited(cluster, request)) return std::nullopt;
  const auto [roomy, free] = without_limits(cluster, request);
  const std::optional<Plan> best = faster_plan(plan, profile, roomy, free, 1 - kRounding);
  if (!best || has_room(*best, cluster, request)) return std::nullopt;  // a search that went another way
  return best->predicted.step;
}

std::optional<Seconds> step_with_recompute(const Plan& plan, const Profile& profile, const Cluster& cluster,
                                           const PlanRequest& request) {
  constexpr double kWorthSaying = 0.95;
  if (request.recompute != RecomputeMode::never || request.programs || !is_limited(cluster, request))
    return std::nullopt;
  auto [roomy, free] = without_limits(cluster, request);
  free.all_reduce_overlap = all_reduce_overlap(cluster, request);
  const double fast = kWorthSaying * plan.predicted.step.count();
  if (least_bound(profile, roomy, planned_graph(profile, request), free, fast) > fast) return std::nullopt;
  PlanRequest again = request;
  again.recompute = RecomputeMode::automatic;
  const std::optional<Plan> best = faster_plan(plan, profile, cluster, again, kWorthSaying);
  return best ? std::optional(best->predicted.step) : std::nullopt;
}

std::vector<WhatIf> what_if(const Plan& plan, const Profile& profile, const Cluster& cluster,
                            const PlanRequest& request, MemoryLimits memory) {
  constexpr double kMoreMemory = 1.1;
  Changes changes(profile);
  const std::string unit = group_size(plan) == 1                   ? "device"
                           : group_size(plan) > plan.tensor_degree ? "group"
                                                                   : "tensor group";
  const Cluster grown = with_one_more(cluster);
  const auto added = std::ssize(grown.devices) - std::ssize(cluster.devices);
  changes.add("one more " + (added > 1 ? "node of " + counted(added, unit) : unit) + " (" +
                  std::to_string(grown.devices.size()) + " in all)",
              grown, request);
  changes.add("twice the bandwidth", with_bandwidth(cluster, 2), request);
  if (!request.cuts.empty()) {
    PlanRequest uncut = request;
    uncut.cuts.clear();
    changes.add("cuts left to the planner", cluster, uncut);
  }
  if (memory == MemoryLimits::yes) {
    PlanRequest larger = request;
    if (larger.memory_limit) larger.memory_limit = scaled(*larger.memory_limit, kMoreMemory);
    Cluster roomier = cluster;
    for (Device& device : roomier.devices) device.memory = scaled(device.memory, kMoreMemory);
    changes.add("10 % more memory", roomier, larger);
  }
  PlanRequest finer = request;
  finer.micro_batches = 2 * plan.training.micro_batches;
  finer.micro_batch_size.reset();
  changes.add("twice the micro-batches (" + std::to_string(*finer.micro_batches) + ")", cluster, finer);
  return std::move(changes).list();
}

std::optional<Plan> plan_of(const Alternative& other, const Profile& profile, const Cluster& cluster,
                            const PlanRequest& request) {
  PlanRequest fixed = request;
  fixed.schedule = other.schedule;
  fixed.micro_batches = other.micro_batches;
  fixed.micro_batch_size.reset();
  fixed.stages.reset();
  fixed.cuts.clear();
  int layers = 0;
  for (const int stage : numbers_in(other.stages)) fixed.cuts.push_back(layers += stage);
  fixed.cuts.pop_back();
  fixed.replicas = numbers_in(other.replicas);
  if (!has_time(request, cluster)) return std::nullopt;
  try {
    std::optional<Plan> plan = best_plan(profile, cluster, fixed);
    Alternative alone = other;
    alone.cores_per_device = alone.tensor_degree = alone.context_degree = alone.expert_degree =
        alone.shard_degree = 0;  // of this machine, or its step differs
    const bool same = plan && plan_summary(*plan) == plan_summary(alone) &&
                      std::abs(plan->predicted.step / other.step - 1) < kRounding;
    return same ? plan : std::nullopt;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) throw;
    return std::nullopt;
  }
}

}  // namespace pp::plan
