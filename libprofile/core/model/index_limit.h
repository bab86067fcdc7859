// Which integers a model's data may hold: those that its embeddings and its loss have an entry for.
#pragma once

#include <cstdint>
#include <optional>

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// Integers 0..limit-1; 0: no reader says. And one beside them, which a loss does not count.
struct IndexRange {
  std::int64_t limit = 0;
  std::optional<std::int64_t> ignored = {};
  bool in_mean = false;  ///< the others alone are averaged
};

/// Every integer of the tensor must be below this: the rows of the embeddings that read it, in graphs and calls
/// too, also by way of tensors that hold the same integers, and the classes of a cross entropy whose target it
/// is. O(layers + nodes).
IndexRange index_range(const ResolvedModel& model, const TensorSource& source);
/// Its limit.
std::int64_t index_limit(const ResolvedModel& model, const TensorSource& source);

}  // namespace pp
