// In which order a pipeline goes through the devices of a cluster: node by node, one device per node in turn,
// the distinct orders of unequal devices.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libplan/request/placement.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Sorts ascending positions for a pipeline that goes through equal devices: scattered, or left as they are.
void arrange(const Cluster& cluster, Placement placement, std::vector<int>& positions);

/// Whether it matters which device a stage gets: more than one level, or unequal speeds or `bytes` (what each
/// device may use).
bool order_matters(const Cluster& cluster, std::span<const std::int64_t> bytes);

/// Orders to search, each a permutation of the cluster's positions, distinct. `automatic`: all orders up to
/// exchanging devices that no plan can tell apart, when they are at most 24 (and the devices at most 16); else
/// node by node and scattered, for every order of the classes of equal speed and bytes (the fastest first alone
/// above 4 classes).
std::vector<std::vector<int>> device_orders(const Cluster& cluster, std::span<const std::int64_t> bytes,
                                            Placement placement);

/// The same devices under the lowest numbers: what no plan can tell apart is exchanged.
std::vector<int> first_twins(const Cluster& cluster, std::span<const std::int64_t> bytes,
                             std::vector<int> positions);

/// Positions for stages with these replicas, in turn, by FreshFirst: a stage that fits an empty node begins
/// on the first one; otherwise it takes the lowest positions that are left.
std::vector<int> place_fresh(const Cluster& cluster, std::span<const int> replicas);

}  // namespace pp::plan
