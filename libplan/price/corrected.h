// A profile and a machine as runs measured them (Plan::calibration), and how crowded the devices and nodes of a
// plan are with its model (cost/layer_curve.h).
#pragma once

#include <vector>

#include "libplan/cost/layer_sums.h"
#include "libplan/plan/plan.h"
#include "libplan/price/pricing.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Every time of a layer, of the loss and of the updates multiplied by its factor. Layers that the profile does
/// not have are passed over.
Profile corrected(const Profile& profile, const Calibration& calibration);

/// Devices that were measured have the speed that was measured; they are known by id and node.
Cluster corrected(Cluster cluster, const Calibration& calibration);

/// Per stage: of its worker that holds most of the model, this stage and its others together, and of the
/// fullest of its nodes. Without parameters nothing tells how full they are: they count as crowded. O(layers +
/// workers of all stages).
std::vector<Crowding> crowding_of_stages(const PricingContext& context, const Assignment& assignment,
                                         int devices);

}  // namespace pp::plan
