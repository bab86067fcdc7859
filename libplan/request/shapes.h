// What a schedule lets a pipeline look like: any stages and replicas, one stage, no replicas, the same number
// everywhere; and where a model may be cut: between any two layers, or only between its blocks. The searches
// know ranges of replicas only, so some schedules take several searches, whose spaces together are the plans
// they admit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libplan/cost/graph.h"
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

/// The part of a layer's name that says in which block it is. By numbers: up to the first part that is one
/// (`model.layers.3` of `model.layers.3.mlp.up_proj`), else the first part if it ends in one (`block3` of
/// `block3.mlp`). By `depth`: the first `depth` parts (`layer1.0` with 2 of `layer1.0.conv1`). Parts end at a
/// point. Empty: the layer is in no block.
std::string_view block_of(std::string_view layer, int depth = 0);

/// Layers that stay together, in file order: of each block that has several, and of each run of layers in no
/// block (an embedding and its norm, a norm and its head). None where no layer is in a block. `depth` as for
/// block_of(); 0: by numbers.
std::vector<std::vector<int>> blocks_of(const PlanGraph& graph, int depth);

/// The blocks by numbers alone, those of one layer too, in file order of their first layers.
std::vector<std::vector<int>> numbered_blocks(const PlanGraph& graph);

}  // namespace pp::plan
