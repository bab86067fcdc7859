// DAPPLE's planner (Fan et al., PPoPP'21, sec. 4) under its own latency (dapple_cost.h).
//
// `released` looks at what the released planner compares: two stages at every cut, every share of the devices
// and every placement; pipelines without replicas over all devices, and over two with copies of the whole, cut
// for the smallest largest stage; one stage. `auto` adds every pipeline of at most as many stages as
// micro-batches whose stages take consecutive devices, server by server, and every number of equal copies of a
// pipeline without replicas, each exactly.
#pragma once

#include "libplan/peers/input.h"

namespace pp::plan {

/// Throws pp::Error (usage) unless the mini-batch is a multiple of the profile's batch. Layer orders as for
/// PipeDream. auto: label setting over (boundary, devices used, replicas of the last stage, stages), labels
/// above the best known latency are dropped.
std::variant<PeerPlan, Infeasible> plan_dapple(const PeerInput& input, const PeerOptions& options);

}  // namespace pp::plan
