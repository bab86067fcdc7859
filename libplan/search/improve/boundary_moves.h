// Pricing and local moves of plans whose schedule places their stages: boundaries move, stages stop running
// again, and where the programs follow the costs (auto-zb) they are searched for again.
#pragma once

#include "libplan/search/finalist/finalist.h"

namespace pp::plan {

/// Prices the best of the partitions that a finalist may start from: sets assignment and prediction, and
/// short_by when a worker's simulated peak exceeds its device. With recompute, stages run again as a whole:
/// all. Pipelines side by side are judged by the first of them, which says nothing of their meeting on links;
/// then all are simulated. False: every step is `worth` or more.
bool price_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request, double worth);

/// Moves one boundary of a priced finalist by a few layers at a time while that makes the step faster and
/// operations are left. Programs that follow the costs (auto-zb) are kept while boundaries move and searched
/// for again where they stop, as long as that helps. With recompute `automatic`, stages that have room stop
/// running again.
void improve_placed(Finalist& finalist, const PricingContext& context, const PlanRequest& request,
                    std::int64_t& operations);

}  // namespace pp::plan
