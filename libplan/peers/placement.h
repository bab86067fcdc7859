// Where DAPPLE puts the devices of a stage (PPoPP'21, sec. 4.2).
#pragma once

#include <vector>

#include "libplan/peers/dapple_cost.h"

namespace pp::plan {

/// Each of `count` devices out of those that are not `occupied`, by the three policies: FreshFirst (whole
/// servers that are still empty), AppendFirst (servers in use), ScatterFirst (one device per server and round).
/// A policy that does not find enough devices gives nothing; equal sets are given once, in that order. Devices
/// ascend.
std::vector<std::vector<int>> placements(const DappleMachine& machine, const std::vector<char>& occupied,
                                         int count);

}  // namespace pp::plan
