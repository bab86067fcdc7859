// What a plan runs again instead of keeping it, read off its programs and stages; the check that they agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/plan.h"

namespace pp::plan {

/// Per stage the first R of the programs: such a stage runs again as a whole.
std::vector<std::optional<Op>> whole_recomputes(const Plan& plan);

/// Per stage `-`, `all` or the number of layers that run again: `all|2|-`; empty when nothing does.
std::string recompute_text(const Plan& plan);

/// What a plan says about recompute agrees: its policy, the layers that stages list, the R of its programs.
/// Stages and programs are valid otherwise. Throws pp::Error (data) with the JSON pointer.
void check_recompute(const Plan& plan);

}  // namespace pp::plan
