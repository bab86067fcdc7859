// Which tensors a stage holds beyond its forward because it has received them.
#pragma once

#include <span>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"

namespace pp::plan {

/// Per layer, whether a reader of its output may keep it for its backward. False only where a measured profile
/// (recognised by `waiting`) shows it: what is saved counts at the first layer that keeps it, so when neither
/// the layer itself nor a reader counts as much as the output, no layer keeps it. A layer that saves nothing
/// may hand on its input's storage, and that may be counted further in front. The loss is taken to keep what it
/// reads. O(layers + edges).
std::vector<bool> may_be_kept(const PlanGraph& graph, std::span<const LayerPrice> prices);

}  // namespace pp::plan
