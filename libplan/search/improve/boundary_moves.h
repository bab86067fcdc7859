// Pricing and local moves of plans whose schedule places their stages: boundaries move, stages stop running
// again, and where the programs follow the costs (auto-zb) they are searched for again.
#pragma once

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// Prices a finalist and moves one boundary by a few layers at a time while that makes the step faster; a start
/// far slower than `best` is not improved. Programs that follow the costs (auto-zb) are kept while boundaries
/// move and searched for again where they stop, as long as that helps. With recompute, stages run again as a
/// whole: all, and with `automatic` then fewer, as long as it fits. Sets assignment and prediction, and
/// short_by when a worker's simulated peak exceeds its device. Pipelines side by side are improved by the first
/// of them, which says nothing of their meeting on links; then all are simulated, unless the first alone takes
/// longer than `worth`: false.
bool settle_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request, double best,
                   double worth);

}  // namespace pp::plan
