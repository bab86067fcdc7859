// The part of check_plan() that is about forwards which run again.
#pragma once

#include "libplan/plan.h"

namespace pp::plan {

/// What a plan says about recompute agrees: its policy, the layers that stages list, the R of its programs.
/// Stages and programs are valid otherwise. Throws pp::Error (data) with the JSON pointer.
void check_recompute(const Plan& plan);

}  // namespace pp::plan
