// A plan's programs as the validator reads them.
#pragma once

#include "libplan/plan.h"

namespace pp::plan {

/// The finite set, without skips: one step; streams past the longest prologue and then for a few rounds in
/// which every worker begins its body anew. Where such a round is long and the replicas of each stage do the
/// same in turns, a stretch of it. Throws pp::Error (data) when these are more operations than kOperationLimit.
ProgramSet program_set(const Plan& plan);

}  // namespace pp::plan
