// Where gradients flow: which parameters the word `frozen` leaves untrained, and which inputs of a layer
// want a gradient. Private to resolve().
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::detail {

/// Fills `trained`, `input_gradient` and `backward` of each layer and of the loss, all else being there. A
/// gradient starts at the loss (without one: at the outputs), flows through floating tensors, and ends at what
/// has no derivative (`aten::detach`), as it does in PyTorch, where such parameters have no `grad`. O(layers +
/// nodes + edges).
void derive_gradients(const ModelGraph& graph, ResolvedModel& model);

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

/// For a layer that uses the parameters of another one, after resolve_frozen(): the owner decides. Throws
/// pp::Error (data) where the layer freezes what its owner trains.
void follow_owner(FrozenWords words, const std::string& owner, const std::vector<bool>& owners,
                  const std::string& pointer, ResolvedLayer& resolved);

}  // namespace pp::detail
