// A profile and a machine as runs measured them (Plan::calibration).
#pragma once

#include "libplan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// Every time of a layer, of the loss and of the updates multiplied by its factor. Layers that the profile does
/// not have are passed over.
Profile corrected(const Profile& profile, const Calibration& calibration);

/// Devices that were measured have the speed that was measured; they are known by id and node.
Cluster corrected(Cluster cluster, const Calibration& calibration);

}  // namespace pp::plan
