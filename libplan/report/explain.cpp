#include "libplan/report/explain.h"

#include <algorithm>

#include "libplan/cost/links.h"
#include "libplan/plan_windows.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// The profiled size whose times count for a micro-batch of `size` samples.
const LayerPoint* point_for(const LayerProfile& layer, int size) {
  const LayerPoint* found = nullptr;
  for (const LayerPoint& point : layer.points) {
    if (!point.out_of_memory && (found == nullptr || point.micro_batch_size <= size)) found = &point;
  }
  return found;
}

Limit limit_of(const StepParts& parts, bool memory) {
  if (memory) return Limit::memory;
  if (parts.compute >= std::max(parts.links, parts.bubble)) return Limit::compute;
  return parts.links >= parts.bubble ? Limit::links : Limit::bubble;
}

std::optional<RunnerUp> runner_up(const Plan& plan, const Profile& profile, const Cluster& cluster,
                                  const PlanRequest& request) {
  const auto found = std::ranges::find_if(plan.alternatives, [&](const Alternative& other) {
    return other.stages != stages_text(plan) || other.replicas != replicas_text(plan) ||
           other.micro_batches != plan.training.micro_batches;
  });
  if (found == plan.alternatives.end()) return std::nullopt;
  RunnerUp second{*found, {}};
  if (const std::optional<Plan> other = plan_of(second.alternative, profile, cluster, request))
    second.parts = step_parts(*other);
  return second;
}

std::vector<LevelMessages> messages_of(const Cluster& cluster) {
  std::vector<LevelMessages> list;
  for (const Level& level : cluster.levels) {
    const Link link = link_of(level);
    if (asks_devices(link) || link.duplex == Duplex::half) list.push_back({level.name, link});
  }
  return list;
}

}  // namespace

std::optional<double> recorded_spread(const Profile& profile, int micro_batch_size) {
  Seconds half_width{};
  Seconds total{};
  for (const LayerProfile& layer : profile.layers) {
    const LayerPoint* point = point_for(layer, micro_batch_size);
    if (point == nullptr) continue;
    for (const TimeStat* time : {&point->forward, &point->backward}) {
      total += time->median;
      if (time->samples > 0) half_width += (time->high - time->low) / 2;
    }
  }
  if (half_width == Seconds{}) return std::nullopt;
  return half_width / total;
}

Explanation explain(const Plan& plan, const Profile& profile, const Cluster& cluster,
                    const PlanRequest& request) {
  Explanation why;
  why.plan = plan_summary(plan);
  why.step = plan.predicted.step;
  why.classic = classic_windows(plan);
  if (!why.classic.empty()) why.windows = windows_of(plan);
  why.loads = loads_of(plan);
  why.bottleneck = at(std::ranges::max_element(why.loads, {}, &Load::busy) - why.loads.begin());
  why.parts = step_parts(plan);
  why.step_without_memory_limit = step_without_memory_limit(plan, profile, cluster, request);
  why.memory_left_out = !why.step_without_memory_limit && !has_time(request, cluster);
  why.limit = limit_of(why.parts, why.step_without_memory_limit.has_value());
  why.certificate = plan.certificate;
  why.runner_up = runner_up(plan, profile, cluster, request);
  why.micro_batches = plan.training.micro_batches;
  why.spread = recorded_spread(profile, micro_batch_sizes(plan.training.mini_batch, why.micro_batches).front());
  why.depth = static_cast<int>(plan.stages.size()) / plan.schedule.chunks_per_worker;
  why.synchronous = require_schedule(plan.schedule.name).synchronous;
  why.machines = plan.machines;
  why.expected_step = plan.predicted.expected_step;
  why.messages = messages_of(cluster);
  why.all_reduce_overlap = plan.predicted.all_reduce_overlap;
  why.overlap_given = request.all_reduce_overlap.has_value();
  why.changes = what_if(plan, profile, cluster, request,
                        why.limit == Limit::memory ? MemoryLimits::yes : MemoryLimits::no);
  return why;
}

}  // namespace pp::plan
