#include "libplan/search/joint.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "libplan/search/baselines/strategy.h"
#include "libplan/search/machine.h"
#include "libplan/search/placed.h"
#include "libplan/search/pool.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Numbers of devices that are searched: all up to 16, then those whose binary form has ones in its first four
/// places only, so that a large machine costs a few dozen searches and not hundreds.
bool is_searched(int devices) {
  const auto count = static_cast<unsigned>(devices);
  return std::bit_width(count) - std::countr_zero(count) <= 4;
}

/// Smaller machines whose baselines compete too: they cost as much as all searches together.
bool has_baselines(int devices) {
  constexpr int kAllUpTo = 8;
  return devices <= kAllUpTo || std::has_single_bit(static_cast<unsigned>(devices));
}

/// One machine: every case of a request, into the pool.
class MachineSearch {
 public:
  MachineSearch(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, Pool& pool)
      : profile_(profile), cluster_(cluster), graph_(graph), pool_(pool) {}

  /// Cases whose bound is above the pool's best are left out; Depth::inherited adds candidates of slower links
  /// and less memory.
  void run(const PlanRequest& request, Depth depth) {
    const double slowest = pool_.best();
    std::vector<Finalist> all;
    CandidateList list;
    for_each_case(profile_, cluster_, graph_, request, [&](const PlanCase& one) {
      orders.insert(one.order.name);
      schedules.insert(one.schedule.name);
      batches.insert(one.batch.sizes);
      if (is_placed(one.schedule)) {
        if (depth == Depth::plain) add_placed(one, request, slowest, all);
        return;
      }
      only_placed = false;
      const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
      const SearchCase what = search_case(one, memory, cluster_, request);
      if (one.first_of_kind || what.limited) list = find_candidates(what, one.space, {slowest, depth});
      bound = std::min(bound, list.bound);
      floor = std::min(floor, list.bound);
      for (const Candidate& candidate : list.candidates) all.push_back(finalist_of(one, candidate));
    });
    pool_.add(std::move(all));
  }

  double bound = kInfinity;      ///< of all plans on these devices
  double floor = kInfinity;      ///< of those on fewer, too
  std::optional<Error> refusal;  ///< the first of a placed schedule
  bool only_placed = true;       ///< no schedule leaves the placement to the planner
  std::set<std::string_view> orders, schedules;
  std::set<std::vector<int>> batches;

 private:
  void add_placed(const PlanCase& one, const PlanRequest& request, double slowest, std::vector<Finalist>& all) {
    floor = std::min(floor, shared_work(one));
    try {
      for (Finalist& finalist : placed_finalists(one, cluster_, request, slowest)) {
        bound = std::min(bound, finalist.bound);
        all.push_back(std::move(finalist));
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      if (!refusal) refusal = error;
    }
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  Pool& pool_;
};

/// A baseline that the machine, the profile or a schedule refuses is none.
void run_baselines(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                   const PlanRequest& request, Pool& pool) {
  for (const PlanRequest& baseline : admitted_baselines(profile, cluster, request)) {
    try {
      check_request(profile, cluster, graph, baseline);
      MachineSearch(profile, cluster, graph, pool).run(baseline, Depth::plain);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
    }
  }
}

}  // namespace

SearchOutcome search_jointly(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                             const PlanRequest& request) {
  Pool pool(profile, cluster, graph, request);
  SearchOutcome outcome;
  outcome.bound = kInfinity;
  std::optional<Error> refusal;
  bool only_placed = true;
  const int all = static_cast<int>(cluster.devices.size());
  for (int devices = all; devices >= 1; --devices) {
    if (devices != all && !is_searched(devices)) continue;
    const Cluster part = first_devices(cluster, devices);
    MachineSearch search(profile, part, graph, pool);
    search.run(request, Depth::plain);
    outcome.bound = std::min(outcome.bound, search.bound);
    if (devices == all) {
      outcome.orders = static_cast<int>(search.orders.size());
      outcome.batches = static_cast<int>(search.batches.size());
      outcome.schedules = static_cast<int>(search.schedules.size());
      only_placed = search.only_placed;
    }
    if (!refusal) refusal = search.refusal;
    if (search.floor > pool.best() || search.floor == kInfinity) break;  // fewer devices cannot do better
    if (devices == all || has_baselines(devices)) run_baselines(profile, part, graph, request, pool);
    search.run(request, Depth::inherited);
  }
  outcome.short_by = pool.short_by();
  outcome.short_schedule = pool.short_schedule();
  outcome.candidates = pool.candidates();
  outcome.ranked = std::move(pool).ranked();
  if (outcome.ranked.empty() && only_placed && !outcome.short_by && refusal) throw *refusal;
  for (const ScheduleRow* row : requested_schedules(request)) outcome.left_out.push_back(row->name);
  for (const ScheduleRow* row : planned_schedules(profile, request)) std::erase(outcome.left_out, row->name);
  return outcome;
}

}  // namespace pp::plan
