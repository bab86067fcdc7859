// In which order a pipeline goes through the devices of a cluster (node by node, one device per node in turn,
// the distinct orders of unequal devices) and through the layers of a model graph (six cheap linear orders,
// which decide which stages are possible and what crosses them).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libplan/cost/graph.h"
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

struct LinearOrder {
  std::string_view name;  ///< `dfs`, `bfs`, `minlive`, `rdfs`, `rbfs`, `rbig`; `file` for the order of the file
  std::vector<int> layers;  ///< layer at each position
};

/// The distinct ones of the six, first name kept. `output_bytes` per layer guides minlive and rbig. Ties go to
/// the layer that stands first in the file. A chain has one order. O(layers^2 + edges).
std::vector<LinearOrder> linear_orders(const PlanGraph& graph, std::span<const std::int64_t> output_bytes);

/// `most` more orders at random, distinct, always the same ones; all of them where a graph has only a few
/// dozen.
std::vector<std::vector<int>> drawn_orders(const PlanGraph& graph, std::size_t most);

LinearOrder file_order(const PlanGraph& graph);

}  // namespace pp::plan
