// Models that can be computed a position at a time: decoders, whose attention is all that looks back.
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// Every layer computes its positions apart or looks back by causal attention (Positions), on tensors [length,
/// ...]. Then a piece of the positions can be computed by itself, with the cache of those before.
bool runs_by_pieces(const ResolvedModel& model, std::int64_t length);

}  // namespace pp
