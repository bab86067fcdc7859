// What links within a process cost, over what pp-run does: queues between cores, hand-overs between CUDA
// devices, and the memory of GPUs for the meter of links between ranks. Plain values only: apps include this
// header.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "libprofile/core/cluster.h"
#include "librun/links/link_fit.h"
#include "librun/links/rank_links.h"

namespace pp::run {

class DeviceGroup;

using Cores = std::vector<int>;

/// Messages of each size, handed back and forth between two pinned threads. Both directions are counted.
///
/// In-process hand-over moves a reference, so its own cost does not depend on the size. What the runtime pays
/// in addition is paid by the consumer: the producer has just written the bytes on another core, so the
/// consumer's first read of them comes from the shared cache or from memory. A message therefore lasts from the
/// moment the producer, its bytes written, puts it into the queue, until the consumer, blocked in its receive
/// as a pipeline stage is, has woken up and read every cache line once. The write is not counted: it is part of
/// the producing layer's time. The read is counted in full although a layer of the same stage would read its
/// input too, from a warmer cache: the cost is an upper bound.
std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep);

/// Every pair of `devices`, CUDA devices that exist and may stand twice (two workers on one device), one pair
/// at a time, and the all-reduce of all of them; the same table and fit as link_meter.h gives for cores. A
/// message of a pair is a tensor that lies complete on the one device, handed over as pp-run does it: by
/// reference on the same device, else copied, directly where the two have peer access and through the host
/// where not (the context says which). It lasts until the copy is complete. Levels are found by link_levels.h;
/// the largest is called `process`. A device that stands twice shares its memory. Throws pp::Error (usage) for
/// fewer than two. `progress` gets a share in [0, 1].
Cluster measure_cuda_links(std::span<const int> devices, const LinkSweep& sweep,
                           const std::function<void(double)>& progress = {});

/// The medium of a group that all ranks form, in their order; `device` is what this rank says of its own.
std::unique_ptr<LinkMedium> make_group_medium(std::shared_ptr<DeviceGroup> group, Device device);

}  // namespace pp::run
