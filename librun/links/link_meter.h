// Measures what handing a boundary tensor from one worker to another costs on this machine: the links that
// plans are priced with. Plain values only: apps include this header.
#pragma once

#include <functional>

#include "libprofile/core/cluster.h"
#include "librun/links/link_fit.h"

namespace pp::run {

/// `pp-profile links --devices cpu:2x1` is two devices of one core each.
struct LinkOptions {
  int devices = 2;
  int cores_per_device = 1;
  LinkSweep sweep;
  Bytes largest_sum{64 << 20};  ///< gradients of a whole stage, so that the line past the caches is seen
};

/// Every pair of CPU devices of this process, one pair at a time (local_links.h says what a message is), and
/// the all-reduce of all of them, up to `largest_sum` where that is more. Levels are found by link_levels.h;
/// the largest is called `process` and carries the all-reduce. Device i has the i-th group of allowed cores and
/// an equal share of the memory. Throws pp::Error: (usage) for fewer than two devices, (device) when there are
/// not enough cores. `progress` gets a share in [0, 1].
Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress = {});

}  // namespace pp::run
