// Smaller and larger machines like a given one.
#pragma once

#include <span>

#include "libprofile/core/cluster.h"

namespace pp::plan {

/// The first `devices` of the list, and the levels that join them, as wide as they are: an all-reduce was
/// measured among all devices of its level.
Cluster first_devices(const Cluster& cluster, int devices);

/// Whether each node has equally many devices.
bool has_equal_nodes(const Cluster& cluster);
/// The most first devices of the list of which that is so.
Cluster with_equal_nodes(const Cluster& cluster);

/// The devices at these ascending positions, numbered anew, and the levels that join them.
Cluster some_devices(const Cluster& cluster, std::span<const int> positions);

/// One more device like the last, at the end of the list; it joins the outermost level.
Cluster with_one_more_device(Cluster cluster);
/// One more node like the last where nodes have equally many devices, several, and it is known how nodes are
/// joined; else one more device.
Cluster with_one_more(Cluster cluster);

/// All links, and what was measured of their all-reduces, so many times as fast.
Cluster with_bandwidth(Cluster cluster, double factor);

}  // namespace pp::plan
