// The models of the segment tests: together they hold every op, residual edges, concatenation and shared
// weights.
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp::model::test {

/// 14 layers: two convolutions with batch norm and a residual edge over them, pooling, dropout, a linear head.
ResolvedModel residual_model();

/// 15 layers: embedding, causal attention and a feed-forward block with residual edges and dropout, an output
/// layer with the embedding's weights. Sequences of 6 out of 11 tokens.
ResolvedModel language_model();

/// 10 layers: two branches that are concatenated, a tensor with three consumers, mean squared error.
ResolvedModel branching_model();

}  // namespace pp::model::test
