// The validator: placement, completeness, progress without deadlock, order, and what the rule sets besides
// `standard` ask for (program_set.h). The first failure is a pp::Error (data) that names the operation; a
// deadlock names every worker's next operation and what it waits for.
#pragma once

#include <span>

#include "libplan/schedule/program_index.h"
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

/// Each rule set has its kinds of operations: swaps only under `swapped`, forwards alone under `forward_only`,
/// F, B and U under `clocked`.
void check_kinds(const ProgramSet& set, const ProgramIndex& index);

/// clocked, with N stages and T frames in T + N - 1 steps: F(s,t) exactly for s <= t < T+s, B(s,t) exactly for
/// max(s, 2(N-1)-s) <= t < T+s, one worker per stage.
void check_clock_steps(const ProgramSet& set, const ProgramIndex& index);

/// clocked: F(s,t+1) runs on the weights that U made in step t.
void check_clock_order(const ProgramSet& set, const ProgramIndex& index);

/// swapped: every forward has one B, or one I and one W, on a worker that also lists its F or its R.
void check_swapped_backwards(const ProgramIndex& index);

/// swapped: every operation of a stage finds its weights on the worker, between L and E; none is left behind,
/// and no gradients go before they are applied.
void check_residency(const ProgramIndex& index);

}  // namespace pp::plan
