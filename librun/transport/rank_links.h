// Measures the links between processes. Plain values only: apps include this header.
#pragma once

#include <functional>
#include <optional>

#include "libprofile/core/cluster.h"
#include "librun/transport/link_samples.h"
#include "librun/transport/ranks.h"

namespace pp::run {

/// Every pair of ranks, one pair at a time, and the all-reduce of all. Clocks of processes differ, so a
/// message's time is half of a round trip; its bytes are in the receiver's memory then. Each rank is one CPU
/// device: its cores are those it may run on, its share of its host's memory is that of the ranks there. Levels
/// are found by link_levels.h; the largest within a host is called `node`, the one that joins hosts `cluster`.
/// All ranks call it; rank 0 gets the cluster. Throws pp::Error (usage), on every rank, for fewer than two
/// ranks and for a sweep without two sizes. `progress` is called on rank 0 with a share in [0, 1].
std::optional<Cluster> measure_rank_links(Ranks& ranks, const LinkSweep& sweep,
                                          const std::function<void(double)>& progress = {});

}  // namespace pp::run
