// Planning with schedules that say themselves which worker holds which stage, one worker per stage or copy:
// zero-bubble kinds, several stages per worker, two copies, programs from a file. The flat search cuts the
// layers into as many stages as the schedule has, as if each had a device of its own; the schedule places them,
// the simulator prices them, boundary layers move while the step gets faster.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "libplan/search/candidates/cases.h"
#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// The schedule of one pipeline of those on `devices` workers; for as many as the request fixes (--stages,
/// --cuts, programs) when these are no more. Nothing when the request fixes another number. Of auto-zb the
/// placement alone: its programs follow the costs. Throws pp::Error (usage) what the schedule refuses.
std::optional<Schedule> placed_schedule(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                        int devices);

/// Whether plans keep to the order of layers that the case has.
enum class LayerOrder { fixed, free };

struct PlacedFinalists {
  std::vector<Finalist> finalists;
  double bound = std::numeric_limits<double>::infinity();  ///< of all plans of the case that beat the slowest
};

/// The partitions worth pricing on exactly the devices of the case, as one pipeline or, where the schedule and
/// the micro-batches allow it, several side by side; nothing when no plan on them can be faster
/// than `limits.slowest`, or no objective is within `limits.near`. Their bound (finalist.bound): all workers
/// share all the work, and in a fixed order each stage has a trip to it, its micro-batches and the trip back.
/// Throws what placed_schedule() throws.
PlacedFinalists placed_finalists(const PlanCase& one, const Cluster& cluster, const PlanRequest& request,
                                 LayerOrder layers, const SearchLimits& limits);

/// Seconds of compute of all micro-batches at the least.
double all_work(const PlanCase& one);
/// All the work shared evenly by the devices of the case: no plan on them is faster. Seconds per
/// step.
double shared_work(const PlanCase& one);

}  // namespace pp::plan
