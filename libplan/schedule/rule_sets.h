// What the rule sets besides `standard` ask for (program_set.h). Internal to the validator and the index; all
// throw pp::Error (data) that names the operation.
#pragma once

#include "libplan/schedule/program_index.h"

namespace pp::plan {

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
