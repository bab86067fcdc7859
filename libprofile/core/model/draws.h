// Which layers draw random numbers, and what that costs.
#pragma once

#include <string>

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// In training: its op, or that of a node of its graph, has a probability above 0.
bool draws_numbers(const Layer& layer);
bool draws_numbers(const LossSpec& loss);

/// Where attention keeps its scores for the sake of dropout alone, which one kernel would do without: a
/// sentence with the remedy. Empty: nowhere.
std::string scores_kept(const ResolvedModel& model);

}  // namespace pp
