// Which layers draw random numbers.
#pragma once

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// In training: its op, or that of a node of its graph, has a probability above 0.
bool draws_numbers(const Layer& layer);
bool draws_numbers(const LossSpec& loss);

}  // namespace pp
