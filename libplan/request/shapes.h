// What a schedule lets a pipeline look like: any stages and replicas, one stage, no replicas, the same number
// everywhere. The searches know ranges of replicas only, so some schedules take several searches, whose spaces
// together are the plans they admit.
#pragma once

#include <string>
#include <vector>

#include "libplan/request/request.h"

namespace pp::plan {

/// One search: the plans that it goes through, and all that their prices read beside the devices and the
/// objective's chain, of which cases that share searches have one. Two that are equal find the same.
struct SearchPart {
  SearchSpace space;
  InFlight in_flight;
  bool synchronous = true;
  const Chain* bound = nullptr;  ///< the bounds' chain
  bool operator==(const SearchPart&) const = default;
};

/// The parts of `whole` that the schedule admits at `micro_batches` per step or update; none: it has no
/// plan there. Equal replicas: one part for each number of them. Weight policies vertical_sync and predict,
/// whose stages keep a version for every stage of the pipeline: where memory is `limited`, one for each most
/// number of stages. On a machine that is_large() replicas are equal in place of free, and on nested groups
/// fill them or equal shares of them.
std::vector<SearchPart> search_parts(const ScheduleRow& schedule, const PlanRequest& request, SearchPart whole,
                                     int micro_batches, bool limited, const Cluster& cluster);

/// Whether replicas may move between stages and windows may grow: neither the schedule nor the weight policy
/// depends on them.
bool is_free_shape(const ScheduleRow& schedule, WeightPolicy policy);

/// Empty, or why the stages, replicas or windows that the request fixes are none the schedule admits: `schedule
/// data-parallel runs the whole model on every worker, found 2 stages; leave the stages out, or plan with
/// 1f1b`.
std::string shape_refusal(const ScheduleRow& schedule, const PlanRequest& request);

/// Throws pp::Error (usage) when the request's stages and replicas need more micro-batches per update than
/// these under the schedule's weight policy, with the fewest that do: an update in the middle of the pipeline
/// would want a weight version that does not exist yet.
void check_update(const ScheduleRow& schedule, const PlanRequest& request, int micro_batches);

}  // namespace pp::plan
