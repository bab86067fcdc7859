// What --cuda-graphs asks of a plan, and which of its passes it reaches. Torch-free.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/plan.h"
#include "librun/stage/pass_kind.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Throws pp::Error (usage, device) where no pass could be recorded: weights move or have versions, or a worker
/// here has no GPU.
void check_cuda_graphs(const plan::Plan& plan, std::span<const Device> devices, const Placement& placement);

/// What keeps the passes of a stage from being recorded: `layer "drop1" draws random numbers`; empty: nothing.
std::string why_not_recorded(const plan::Plan& plan, const ResolvedModel& model, StageId stage);

/// Of the stage's passes in a worker's program, in the order of their forwards.
std::vector<PassKind> pass_kinds(const plan::Program& program, StageId stage);

}  // namespace pp::run
