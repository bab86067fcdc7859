// The choice over everything a request leaves open: schedule, micro-batches, layer order, partition, devices.
// One loop over what is open, by the least step that may come of it: cases by their bound, partitions by their
// objective, priced plans, whose neighbours are tried, by their step. What comes of each is open in turn; what
// cannot beat the best plan is closed.
//
// Where that takes long, cuts between blocks are searched first: their best is what all others have to beat.
//
// Everything is searched on fewer devices, too (the first ones of the list, unless a placement that spreads
// stages over nodes is asked for; large models: on some counts), so that more devices do not do worse.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

struct SearchOutcome {
  std::vector<Finalist> ranked{};     ///< simulated, best first; empty: nothing fits
  std::optional<Bytes> short_by{};    ///< of placed schedules: what the best attempt lacks on one device
  std::string_view short_schedule{};  ///< that of the best attempt
  std::string_view endless{};         ///< Shortlist::endless()
  double bound = 0;                   ///< seconds per step; no plan of the searched family is faster
  std::string bound_holds{};          ///< `any layer order`: what the bound is over; empty: the searched orders
  int orders = 0;                     ///< distinct layer orders of one case
  int batches = 0;
  int schedules = 0;
  int placed_schedules = 0;     ///< of them: those that place their stages themselves
  bool equal_replicas = false;  ///< alone were searched for some of the others: a large machine
  bool exact = true;            ///< of the others every partition was searched, whatever devices it gets
  bool cut_short = false;       ///< the observer of the request stopped the search
  int candidates = 0;
  int improved = 0;                          ///< of `ranked`, by local moves
  std::vector<std::string_view> left_out{};  ///< schedules that need the split of the backward, only estimated
  std::vector<std::string_view> unpriced{};  ///< unpriced_schedules()
};

/// Throws pp::Error (usage): the schedule's refusal when it refuses every number of workers and micro-batches.
SearchOutcome search_plans(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                           const PlanRequest& request);

}  // namespace pp::plan
