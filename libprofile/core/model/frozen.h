// The word `frozen` of layers and nodes: which parameters it names, and the shortest form that says so. Private
// to resolve().
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::detail {

/// Where a layer's words stand.
struct FrozenWords {
  Frozen& layer;
  std::vector<Layer>& nodes;
};

/// Fills `resolved.frozen`, whose parameters and nodes are there, and brings the words to the shortest form:
/// `true` at the layer when all its parameters are frozen, else at each node that owns some. Throws pp::Error
/// (data) for an unknown or repeated name, for a layer without parameters, and where a node freezes what an
/// earlier one owns and trains. O(parameters + names), times the logarithm of their number.
void resolve_frozen(FrozenWords words, const std::string& pointer, ResolvedLayer& resolved);

/// Of a layer that uses the parameters of another one, after resolve_frozen(): the owner decides. Throws
/// pp::Error (data) where the layer freezes what its owner trains.
void follow_owner(FrozenWords words, const std::string& owner, const std::vector<bool>& owners,
                  const std::string& pointer, ResolvedLayer& resolved);

}  // namespace pp::detail
