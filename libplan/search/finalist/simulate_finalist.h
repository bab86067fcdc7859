// What the simulator says about a finalist, with what its stages run again.
#pragma once

#include <limits>

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// Simulates a finalist whose schedule does not place its stages, from assign() on: sets its recompute choice,
/// assignment, prediction and short_by. With recompute `automatic` the fastest of recompute_choices() that
/// fits; of equally fast ones the one that runs fewer layers again. Costs one or two simulations. False: a
/// synchronous one whose rank by its step is no better than `worth`; no more than the step is known. Throws
/// pp::Error (data) on a deadlock.
bool simulate_finalist(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                       double worth = std::numeric_limits<double>::infinity());

/// The whole-stage mode that `mode` means for every stage; nothing with `automatic`.
std::optional<Recompute> whole_mode(RecomputeMode mode);

}  // namespace pp::plan
