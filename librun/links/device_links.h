// What links between CUDA devices cost, over what pp-run does: the half of the link meter that needs LibTorch.
// Plain values only: apps include this header.
#pragma once

#include <functional>
#include <span>

#include "libprofile/core/cluster.h"
#include "librun/links/link_samples.h"

namespace pp::run {

/// Every pair of `devices`, CUDA devices that exist and may stand twice (two workers on one device), one pair
/// at a time, and the all-reduce of all of them; the same table and fit as link_meter.h gives for cores. A
/// message of a pair is a tensor that lies complete on the one device, handed over as pp-run does it: by
/// reference on the same device, else copied, directly where the two have peer access and through the host
/// where not (the context says which). It lasts until the copy is complete. Levels are found by link_levels.h;
/// the largest is called `process`. A device that stands twice shares its memory. Throws pp::Error (usage) for
/// fewer than two. `progress` gets a share in [0, 1].
Cluster measure_cuda_links(std::span<const int> devices, const LinkSweep& sweep,
                           const std::function<void(double)>& progress = {});

}  // namespace pp::run
