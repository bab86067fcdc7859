// The same machine otherwise: with more nodes, or with neighbours joined into tensor groups.
#pragma once

#include "libprofile/core/cluster.h"

namespace pp {

/// Copies of the first node: the group of the innermost of two levels. The outer level, which in a
/// document of one node says how nodes would be joined, joins all of them; of one node it goes away. What was
/// measured of the sums of another number of nodes goes with it. Throws pp::Error (usage): not two levels,
/// nodes that differ, more than kDeviceLimit devices.
Cluster with_nodes(const Cluster& cluster, int nodes);

/// The same cluster without levels that join a single group of the level inside them.
Cluster without_single_groups(Cluster cluster);

/// Gradients are summed in buckets, where sums are not measured.
Cluster with_buckets(Cluster cluster, Bytes bucket);

/// Each device of the result is `degree` neighbours of one group of the innermost level, or as many
/// groups as make `degree` devices, which compute every layer together. Memory is that of one member, the
/// slowest speed counts. What a group sends to another, or adds up with it, goes from member to member side by
/// side, each part over the links of its own member; where several members sit behind one network card they
/// share its bandwidth. Measured all-reduces are left out: they are of another number of devices. Throws
/// pp::Error (usage) where the innermost groups neither divide into such neighbours nor make them up.
Cluster with_tensor_groups(const Cluster& cluster, int degree);

}  // namespace pp
