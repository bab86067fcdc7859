// How crowded the devices and nodes of a plan are with its model (cost/layer_curve.h).
#pragma once

#include <vector>

#include "libplan/cost/layer_sums.h"
#include "libplan/price/pricing.h"

namespace pp::plan {

/// Per stage: of its worker that holds most of the model, this stage and its others together, and of the
/// fullest of its nodes. Without parameters nothing tells how full they are: they count as crowded. O(layers +
/// workers of all stages).
std::vector<Crowding> crowding_of_stages(const PricingContext& context, const Assignment& assignment);

}  // namespace pp::plan
