// Plans as text for people.
#pragma once

#include <string>

#include "libplan/peers/peer.h"
#include "libplan/plan.h"

namespace pp::plan_tool {

/// One line: model, schedule, sizes.
std::string plan_title(const plan::Plan& plan);

/// The title, then the stages with the bottleneck marked, the promise, the bound and the
/// alternatives.
std::string plan_text(const plan::Plan& plan, bool color);

/// A plan under another planner's cost model: its stages, objective and bound. `elapsed`: of the search.
std::string peer_plan_text(const plan::PeerPlan& plan, Seconds elapsed);

/// Every worker's program.
std::string programs_text(const plan::Plan& plan);

}  // namespace pp::plan_tool
