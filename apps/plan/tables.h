// Plans as text for people.
#pragma once

#include <string>

#include "libplan/plan.h"

namespace pp::plan_tool {

/// One line of what was chosen, then the stages with the bottleneck marked, the promise, the bound and the
/// alternatives.
std::string plan_text(const plan::Plan& plan, bool color);

/// One row per worker: its operations as a timeline of `width` characters, from the simulator's events.
std::string timeline(const plan::SimulationResult& result, int width);

/// Every worker's program.
std::string programs_text(const plan::Plan& plan);

}  // namespace pp::plan_tool
