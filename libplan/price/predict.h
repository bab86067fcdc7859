// What a plan costs, whoever made it.
#pragma once

#include "libplan/plan/plan.h"
#include "libplan/request/plan_request.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The devices and links a plan was made for.
Cluster cluster_of(const Plan& plan);

/// What `plan` costs on `cluster`, by the simulator: also for plans written or edited by hand. Devices are
/// found by id. Throws pp::Error (data) when a layer, a device or a micro-batch size is missing.
Prediction predict(const Plan& plan, const Profile& profile, const Cluster& cluster,
                   const PlanRequest& options = {});

/// The simulator's input for `plan` with the costs it carries (plan.predicted.stages): what `pp-plan simulate`
/// draws. Streams are expanded to `updates` optimizer updates. Throws pp::Error (data) when the plan carries no
/// costs.
SimulationInput simulation_input(const Plan& plan, int updates = 1);
/// Updates of an asynchronous plan that are long enough for steady_period().
int steady_updates(const Plan& plan);

}  // namespace pp::plan
