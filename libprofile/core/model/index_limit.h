// Which integers a model's data may hold: those that its embeddings and its loss have an entry for.
#pragma once

#include <cstdint>

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// Every integer of the tensor must be below this: the rows of the embeddings that read it, in graphs and calls
/// too, also by way of tensors that hold the same integers, and the classes of a cross entropy whose target it
/// is. 0: no reader says. O(layers + nodes).
std::int64_t index_limit(const ResolvedModel& model, const TensorSource& source);

}  // namespace pp
