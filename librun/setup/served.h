// What a training with a parameter server asks of plan and options, before work starts. Torch-free.
#pragma once

#include "librun/data/order.h"
#include "librun/options/run_options.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Mini-batches that a replica may be ahead of the slowest one when it begins with another
/// (server/interleaving.h): 0 in step, the staleness of ssp, else so many that they do not hold anybody up.
Step clock_bound(const plan::Plan& plan, const RunOptions& options, const Placement& placement);

/// Also for other plans: that they are given no option of these. Throws pp::Error (usage, data).
void check_served(const plan::Plan& plan, const ResolvedModel& model, const RunOptions& options,
                  const Placement& placement);

}  // namespace pp::run
