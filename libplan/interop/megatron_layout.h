// Megatron's --pipeline-model-parallel-layout, read: which of a model's blocks stand in which stage.
#pragma once

#include <string>
#include <vector>

#include "libplan/cost/graph.h"

namespace pp::plan {

/// The first layers of all stages but the first, of a layout such as `Et*3|(tt|)*29,L`: `E` is what stands in
/// front of the first numbered block, `t` a block, `L` what stands behind the last, `|` begins a stage, `x*n`
/// and
/// `(..)*n` repeat, commas mean nothing. `E||t|L`: a stage of nothing, `m`: multi-token prediction; both are
/// refused. Throws pp::Error (usage) for a text that is no layout, and for one of another number of blocks.
/// Source: Megatron-Core's guide, "Custom Pipeline Model Parallel Layout".
std::vector<int> cuts_of_layout(const PlanGraph& graph, const std::string& layout);

}  // namespace pp::plan
