// Measures what handing a boundary tensor from one worker of this process to another costs, between cores or
// between CUDA devices: the links that plans are priced with. Plain values only: apps include this header.
#pragma once

#include <functional>
#include <span>

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

/// Every pair of CPU devices of this process, one pair at a time (tensor_links.h says what a message is), and
/// the all-reduce of all of them, up to `largest_sum` where that is more. Levels are found by link_levels.h;
/// the largest is called `process` and carries the all-reduce. Device i has the i-th group of allowed cores and
/// an equal share of the memory. Throws pp::Error: (usage) for fewer than two devices, (device) when there are
/// not enough cores. `progress` gets a share in [0, 1].
Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress = {});

/// The same of CUDA devices that exist and may stand twice: two workers on one device, which share its memory.
/// Tensors go by reference on the same device, else directly where the two have peer access and through the
/// host where not, which the context says. Throws pp::Error (usage) for fewer than two.
Cluster measure_cuda_links(std::span<const int> devices, const LinkSweep& sweep,
                           const std::function<void(double)>& progress = {});

}  // namespace pp::run
