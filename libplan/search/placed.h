// Planning with schedules that say themselves which worker holds which stage, one worker per stage or copy:
// zero-bubble kinds, several stages per worker, two copies, programs from a file (semantics.md, Search for
// several stages per worker). The flat search cuts the layers into as many stages as the schedule has, as if
// each had a device of its own; the schedule places them, the simulator prices them, boundary layers move while
// the step gets faster.
#pragma once

#include <vector>

#include "libplan/search/finalists.h"

namespace pp::plan {

/// Whether plans of this schedule come from here.
bool is_placed(const ScheduleRow& row);

/// The schedule for every number of workers that the request and the devices of the case allow. Of auto-zb the
/// placement alone: its programs follow the costs. Numbers that the schedule refuses are left out; throws the
/// refusal, pp::Error (usage), when it refuses them all.
std::vector<Schedule> placed_schedules(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                       int devices);

/// All partitions worth pricing; their bound, which only needs that all workers share all the work, is added to
/// `bound` (the smaller wins).
std::vector<Finalist> placed_finalists(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                       double& bound);

/// Prices a finalist and moves one boundary by a few layers at a time while that makes the step faster.
/// Programs that follow the costs (auto-zb) are kept while boundaries move and searched for again where they
/// stop, as long as that helps. Sets assignment and prediction, and short_by when a worker's simulated peak
/// exceeds its device.
void settle_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request);

}  // namespace pp::plan
