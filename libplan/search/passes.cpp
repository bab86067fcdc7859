// pass           question                                    input                     output
// partitions     which are best by the objective?            cases on so many devices  finalists, bound
// drawn orders   which schedules fit in other layer orders?  64 orders at random       finalists
// second look    what has the objective misjudged?           cases on all devices      finalists near the best
// local moves    what does the simulator say of neighbours?  plans near the best       faster plans
//
// Partitions stop when all cases are searched, drawn orders are asked for schedules that fit in none of the
// usual ones, a second look ends with what is worth simulating, local moves when nothing helps or their
// operations are used up.
//
// Partitions and local moves are made again on fewer and fewer devices, until a bound says that no plan there
// can win.
#include "libplan/search/passes.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/request/machine.h"
#include "libplan/request/plan_request.h"
#include "libplan/search/candidates/cases.h"
#include "libplan/search/candidates/collect_candidates.h"
#include "libplan/search/shortlist.h"

namespace pp::plan {
namespace {

/// Numbers of devices that are searched: of large models those whose binary form has ones in its first three
/// places only, so that a large machine costs a few dozen searches and not hundreds.
bool is_searched(int layers, int devices) {
  const auto count = static_cast<unsigned>(devices);
  return is_small(layers, devices) || std::bit_width(count) - std::countr_zero(count) <= 3;
}

class Passes {
 public:
  Passes(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request)
      : profile_(profile),
        cluster_(cluster),
        graph_(graph),
        request_(request),
        shortlist_(profile, cluster, graph, request) {}

  SearchOutcome run() {
    const int all = static_cast<int>(cluster_.devices.size());
    for (int devices = all; devices >= 1; --devices) {
      if (devices != all && !is_worth_searching(devices)) continue;
      const bool any = partitions(devices);
      if (devices == all) drawn_orders();
      if (stopped()) break;
      if (floor_ > shortlist_.best() || floor_ == kInfinity) {
        if (request_.even_nodes) continue;  // its plans use all of them: fewer may do better
        break;
      }
      if (!any && shortlist_.best() == kInfinity) continue;
      if (devices == all) second_look();
      shortlist_.improve(devices);
      if (stopped()) break;
    }
    return outcome();
  }

 private:
  /// A part of the machine knows nothing of the nodes beyond it, over which some placements spread the stages;
  /// parts of a large one are searched with it.
  bool is_worth_searching(int devices) const {
    const bool spread = request_.placement == Placement::scatter || request_.placement == Placement::fresh;
    if (spread || !is_searched(graph_.size(), devices)) return false;
    if (request_.even_nodes && !has_equal_nodes(first_devices(cluster_, devices))) return false;
    // Of a large machine, whose parts are searched with it unless plans use all of one: until there is a plan.
    if (!is_large(graph_.size(), devices)) return true;
    return request_.even_nodes && shortlist_.best() == kInfinity;
  }

  /// Whether it has found any.
  bool partitions(int devices) {
    const bool all = devices == static_cast<int>(cluster_.devices.size());
    Collected found =
        collect_candidates(profile_, first_devices(cluster_, devices), graph_, request_, known(), Depth::plain);
    const bool any = !found.finalists.empty();
    shortlist_.add(std::move(found.finalists));
    if (all || request_.even_nodes)  // no part of the machine undercuts it, unless plans use all of one
      outcome_.bound = std::min(outcome_.bound, found.bound);
    outcome_.bound = std::min(outcome_.bound, found.placed_bound);
    floor_ = found.floor;
    nothing_fits_ = std::move(found.nothing_fits);
    cut_short_ = found.cut_short;
    if (!refusal_) refusal_ = found.refusal;
    if (!all) return any;
    outcome_.bound_holds = found.bound_holds;
    outcome_.orders = found.orders;
    outcome_.batches = found.batches;
    outcome_.schedules = found.schedules;
    outcome_.placed_schedules = found.placed_schedules;
    outcome_.exact = found.exact;
    outcome_.equal_replicas = found.equal_replicas;
    only_placed_ = found.only_placed;
    return any;
  }

  /// Of each schedule that has no plan, as if it had been asked for alone.
  void drawn_orders() {
    PlanRequest drawn = request_;
    drawn.schedule = unplanned_schedules();
    if (!drawn.schedule.empty() && !stopped()) shortlist_.add(collect_drawn(profile_, cluster_, graph_, drawn));
  }

  /// Of those that leave the placement to the planner and take the micro-batches; joined by commas.
  std::string unplanned_schedules() const {
    const std::vector<std::string_view> unpriced = unpriced_schedules(profile_, request_);
    std::string names;
    for (const ScheduleRow* row : planned_schedules(profile_, request_)) {
      if (places_stages(*row) || shortlist_.steps().contains(row) ||
          std::ranges::count(unpriced, row->name) > 0)
        continue;
      names.append(names.empty() ? "" : ",").append(row->name);
    }
    return names;
  }

  void second_look() {
    Collected found = collect_candidates(profile_, cluster_, graph_, request_, known(), Depth::inherited);
    cut_short_ = found.cut_short;
    shortlist_.add(std::move(found.finalists));
  }

  Known known() const { return {shortlist_.steps(), shortlist_.far(), nothing_fits_}; }
  bool stopped() const { return cut_short_ || shortlist_.cut_short(); }

  SearchOutcome outcome() {
    outcome_.short_by = shortlist_.short_by();
    outcome_.short_schedule = shortlist_.short_schedule();
    outcome_.endless = shortlist_.endless();
    outcome_.candidates = shortlist_.candidates();
    outcome_.improved = shortlist_.improved();
    outcome_.cut_short = stopped();
    if (outcome_.cut_short) outcome_.bound = std::min(outcome_.bound, floor_);  // of the devices that were left
    outcome_.ranked = std::move(shortlist_).ranked();
    if (outcome_.ranked.empty() && only_placed_ && !outcome_.short_by && refusal_) throw *refusal_;
    for (const ScheduleRow* row : requested_schedules(request_)) outcome_.left_out.push_back(row->name);
    for (const ScheduleRow* row : planned_schedules(profile_, request_))
      std::erase(outcome_.left_out, row->name);
    outcome_.unpriced = unpriced_schedules(profile_, request_);
    return std::move(outcome_);
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  Shortlist shortlist_;
  SearchOutcome outcome_{.bound = kInfinity};
  std::optional<Error> refusal_;
  bool only_placed_ = true;
  bool cut_short_ = false;
  double floor_ = kInfinity;  ///< Collected::floor of the last machine
  NothingFits nothing_fits_;
};

}  // namespace

SearchOutcome search_plans(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                           const PlanRequest& request) {
  if (request.even_nodes && !has_equal_nodes(cluster))
    return Passes(profile, with_equal_nodes(cluster), graph, request).run();
  return Passes(profile, cluster, graph, request).run();
}

}  // namespace pp::plan
