// The tables of pipeline_study.h from a profile: one cut of the model, more and more micro-batches.
#pragma once

#include <optional>
#include <vector>

#include "libplan/report/pipeline_study.h"
#include "libplan/search/planner.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Forwards of a mini-batch through the stages that `request.cuts` make of the layers in file order, or else
/// `request.stages` whose forwards are as even as can be at the middle one of the counts. Times of the profile,
/// the executor's fixed cost of an operation included; stage s is on device s of the cluster. The second table,
/// which wants a cluster, adds to every stage the transfers into it: the formulas have the receiving stage wait
/// for them.
///
/// `micro_batches` empty: all profiled sizes that divide the mini-batch. Throws pp::Error: usage for what
/// check_request() refuses, stages that are not asked for, and micro-batches that would not be equal; data for
/// a profile in which no stage takes any time.
StageTimeTables profile_stage_times(const Profile& profile, const std::optional<Cluster>& cluster,
                                    PlanRequest request, std::vector<int> micro_batches);

}  // namespace pp::plan
