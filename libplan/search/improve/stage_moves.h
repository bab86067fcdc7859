// Local moves on a priced plan whose schedule does not place its stages, on the real graph: a layer moves over
// a cut, a replica to a neighbouring stage, a device without work to any, windows by a few micro-batches.
// Stages leave the linear order they were found in: they only have to be contiguous in some order of the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// What may be changed about a plan whose schedule does not place its stages.
struct StageShape {
  std::vector<std::vector<int>> layers;  ///< per stage, in file order
  std::vector<int> replicas;
  std::vector<int> windows;  ///< per stage; empty: by the request's rule

  int stages() const { return static_cast<int>(layers.size()); }
  bool operator==(const StageShape&) const = default;
};

/// What goes along when `layer` of stage `from` moves to the neighbouring stage `to`: it and everything of its
/// stage that reads it, directly or not (for an earlier `to`: that it reads), in the order found. Empty when
/// that is the whole stage, more than a dozen layers, or shares weights with any layer.
std::vector<int> moving_layers(const PlanGraph& graph, const StageShape& shape, int layer, int from, int to);

/// Climbs from `finalist`, priced before, until no single change helps or no `operations` are left. Changes are
/// taken when the step time falls and every simulated peak is within its device. Only what the request leaves
/// open is changed: no layers with given cuts, no replicas with given ones, no given windows. Replicas are
/// added on the first `devices` of the cluster.
void improve_stages(Finalist& finalist, const PricingContext& context, const PlanRequest& request, int devices,
                    std::int64_t& operations);

}  // namespace pp::plan
