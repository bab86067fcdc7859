// A plan as the text that PipeDream's optimizer writes and its code generator reads.
#pragma once

#include <string>

#include "libplan/plan.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// One line per layer in the order of the profile, `id -- op -- forward_compute_time=..,
/// backward_compute_time=.., activation_size=.., parameter_size=.. -- stage_id=K`, then the edges; times in ms
/// at the profile's first micro-batch size, sizes in bytes. import_pipedream() reads it back. Replicas are not
/// part of the format. Throws pp::Error (data) when the plan was made for another model.
std::string export_pipedream(const Plan& plan, const Profile& profile);

}  // namespace pp::plan
