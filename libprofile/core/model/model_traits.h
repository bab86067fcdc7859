// What a model's operations mean for who runs it: which integers its data may hold, which layers draw random
// numbers, whether it can be computed a position at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libprofile/core/model/model_graph.h"

namespace pp {

/// Every layer computes its positions apart or looks back by causal attention (Positions), on tensors [length,
/// ...]. Then a piece of the positions can be computed by itself, with the cache of those before.
bool runs_by_pieces(const ResolvedModel& model, std::int64_t length);

/// In training: its op, or that of a node of its graph, has a probability above 0.
bool draws_numbers(const Layer& layer);
bool draws_numbers(const LossSpec& loss);

/// Where attention keeps its scores for the sake of dropout alone, which one kernel would do without: a
/// sentence with the remedy. Empty: nowhere.
std::string scores_kept(const ResolvedModel& model);

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
