// The validator: placement, completeness, progress without deadlock, order. The first failure is a pp::Error
// (data); a deadlock names every worker's next operation and what it waits for.
#pragma once

#include <span>

#include "libplan/schedule/program_set.h"

namespace pp::plan {

/// Placement, completeness, progress, order. O(operations). Throws pp::Error (data) with the first failure:
/// `worker 1, operation 4 (B1.3): ...`, positions from 0.
void validate(const ProgramSet& set);

/// Largest number of micro-batches in flight on this worker, walking its list: F adds 1/v, B or W subtracts
/// 1/v; a forward without a backward on this worker (inference, swaps) leaves nothing behind. O(n log n).
double peak_in_flight(std::span<const Op> program, int chunks_per_worker);

/// Throws pp::Error (data) that names the first worker whose peak exceeds its limit. `limits`: one per worker,
/// or one for all.
void check_in_flight(const ProgramSet& set, std::span<const double> limits, int chunks_per_worker);

}  // namespace pp::plan
