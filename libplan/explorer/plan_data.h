// A plan as the data that the page shows: stages, workers on their devices, traffic, alternatives; and the
// names in pictures of its timeline.
#pragma once

#include <cstddef>
#include <string>

#include "libplan/draw/timeline_svg.h"
#include "libplan/plan/plan.h"

namespace pp::plan {

/// Links that are listed one by one; beyond them those of a pair of nodes are one.
inline constexpr std::size_t kMostLinks = 20'000;

/// An object with
///   name, title   as given: the file, and one line
///   schedule, stages_text, replicas_text, mini_batch, micro_batches
///   step, expected_step, makespan, bubble, rate (samples/s), peak (bytes), gap, lower_bound: what is promised;
///   0 or
///                 absent: nothing is
///   throughput    as pp-plan prints it for programs; absent where no step is promised
///   stages        names of the layers, `again` how many of them are recomputed, workers, seconds per
///   micro-batch by
///                 kind of operation as `times`, memory by part as `memory` (of the worker that holds most) and
///                 its `peak`, `limit` of the smallest device, `busy` of the busiest worker per step, bytes
///                 `saved` per micro-batch, bytes `sends` and `returns` per micro-batch to other stages
///   nodes         their names
///   workers       [node, device, limit, stage, ...] each
///   slots         where each worker's device stands: groups of levels are equal runs of slots
///   levels        [name, devices, bytes per second, latency] each
///   links         [from, to, bytes per step] each, workers; negative: node -1 - n
///   alternatives  as the document has them; `shown` where `plans` holds one: its index
/// Seconds and bytes. O(plan).
Json plan_data(const Plan& plan, const std::string& name, const std::string& title);

/// Marks the alternatives of `data` that are among all plans of the page: the same schedule, stages, replicas
/// and micro-batches, and the same step but for rounding.
void mark_alternatives(Json& plans);

/// Layers of the stages, devices of the workers and their memory; no title. The plan has been checked.
SvgOptions picture_names(const Plan& plan);

}  // namespace pp::plan
