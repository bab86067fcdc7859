// Where a model may be cut: between any two layers, or only between its blocks.
#pragma once

#include <string_view>
#include <vector>

#include "libplan/cost/graph.h"

namespace pp::plan {

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
