// Windows for the links a plan runs over, which the rules know nothing of.
#pragma once

#include <vector>

#include "libplan/search/finalist/finalist.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Windows larger than WindowRule::win with which the links of a simulated finalist need not hold up its
/// busiest stage or port, none or up to two: by the round trip of each stage, compute and transfers from it to
/// the last stage and back (Little's law); and with every link as a stage of its own, which `wide` is for links
/// that take up to one turn, and in a stream with replicas that wait for each other. Of a synchronous plan not
/// above its micro-batches.
std::vector<std::vector<int>> covering_windows(const Finalist& finalist, const Cluster& cluster);

}  // namespace pp::plan
