#include "libplan/search/joint.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "libplan/search/candidates/candidates.h"
#include "libplan/search/candidates/gather.h"
#include "libplan/search/pool.h"
#include "libplan/search/request/machine.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Numbers of devices that are searched: of large models those whose binary form has ones in its first three
/// places only, so that a large machine costs a few dozen searches and not hundreds.
bool is_searched(int layers, int devices) {
  const auto count = static_cast<unsigned>(devices);
  return is_small(layers, devices) || std::bit_width(count) - std::countr_zero(count) <= 3;
}

}  // namespace

SearchOutcome search_jointly(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                             const PlanRequest& request) {
  Pool pool(profile, cluster, graph, request);
  SearchOutcome outcome;
  outcome.bound = kInfinity;
  std::optional<Error> refusal;
  bool only_placed = true;
  bool cut_short = false;
  double floor = kInfinity;
  const int all = static_cast<int>(cluster.devices.size());
  // A part of the machine knows nothing of the nodes beyond it, over which these spread the stages.
  const bool spread = request.placement == Placement::scatter || request.placement == Placement::fresh;
  for (int devices = all; devices >= 1; --devices) {
    if (devices != all && (spread || !is_searched(graph.size(), devices))) continue;
    if (devices != all && is_large(graph.size(), devices)) continue;  // parts of it are searched with it
    const Cluster part = first_devices(cluster, devices);
    Gathered found = gather(profile, part, graph, request, {pool.slowest(), pool.far()},
                            devices == all ? DownSets::search : DownSets::leave_out);
    const bool any = !found.finalists.empty();
    pool.add(std::move(found.finalists));
    if (devices == all && pool.best() == kInfinity && !found.only_placed && !found.cut_short)
      pool.add(gather_drawn(profile, part, graph, request));
    if (devices == all) outcome.bound = found.bound;  // which no part of the machine undercuts
    outcome.bound = std::min(outcome.bound, found.placed_bound);
    floor = found.floor;
    if (!refusal) refusal = found.refusal;
    if (devices == all) {
      outcome.bound_holds = found.bound_holds;
      outcome.orders = found.orders;
      outcome.batches = found.batches;
      outcome.schedules = found.schedules;
      outcome.placed_schedules = found.placed_schedules;
      outcome.exact = found.exact;
      outcome.equal_replicas = found.equal_replicas;
      only_placed = found.only_placed;
    }
    cut_short = found.cut_short;
    if (cut_short || pool.cut_short()) break;
    if (found.floor > pool.best() || found.floor == kInfinity) break;  // fewer devices cannot do better
    if (!any && pool.best() == kInfinity) continue;
    Gathered inherited = gather(profile, part, graph, request, {pool.slowest(), pool.far(), Depth::inherited},
                                DownSets::leave_out);
    cut_short = inherited.cut_short;
    pool.add(std::move(inherited.finalists));
    pool.improve(devices);
    if (cut_short || pool.cut_short()) break;
  }
  outcome.short_by = pool.short_by();
  outcome.short_schedule = pool.short_schedule();
  outcome.endless = pool.endless();
  outcome.candidates = pool.candidates();
  outcome.improved = pool.improved();
  outcome.cut_short = cut_short || pool.cut_short();
  if (outcome.cut_short) outcome.bound = std::min(outcome.bound, floor);  // of the devices that were left
  outcome.ranked = std::move(pool).ranked();
  if (outcome.ranked.empty() && only_placed && !outcome.short_by && refusal) throw *refusal;
  for (const ScheduleRow* row : requested_schedules(request)) outcome.left_out.push_back(row->name);
  for (const ScheduleRow* row : planned_schedules(profile, request)) std::erase(outcome.left_out, row->name);
  outcome.unpriced = unpriced_schedules(profile, request);
  return outcome;
}

}  // namespace pp::plan
