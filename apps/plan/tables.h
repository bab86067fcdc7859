// Plans as text for people.
#pragma once

#include <optional>
#include <string>

#include "apps/cli/shell.h"
#include "libplan/peers/peer.h"
#include "libplan/plan/plan.h"
#include "libplan/report/throughput.h"

namespace pp::plan_tool {

/// One line: model, schedule, sizes.
std::string plan_title(const plan::Plan& plan);
/// The same without the model.
std::string plan_description(const plan::Plan& plan);

/// The title, degrees and rates, the stages with the bottleneck marked, the promise, also in tokens and money,
/// the bound and the alternatives; with -v also names of layers and what was searched. `throughput`: of a plan
/// with a prediction.
std::string plan_text(const plan::Plan& plan, const std::optional<plan::Throughput>& throughput,
                      const cli::Shell& shell);

/// The plan as JSON, with `throughput` where it says more than samples per second.
Json plan_json(const plan::Plan& plan, const std::optional<plan::Throughput>& throughput);

/// A plan under another planner's cost model: its stages, objective and bound. `elapsed`: of the search.
std::string peer_plan_text(const plan::PeerPlan& plan, Seconds elapsed);

/// Every worker's program.
std::string programs_text(const plan::Plan& plan);

}  // namespace pp::plan_tool
