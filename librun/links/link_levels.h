// From links between pairs of devices to the nested levels of a cluster. Pure.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/cluster.h"
#include "librun/links/message_cost.h"

namespace pp::run {

/// The link between two devices, by position, both directions together.
struct MeasuredPair {
  int first = 0, second = 0;
  std::vector<LinkSample> samples;
  std::vector<KeptTime> kept = {};  ///< empty: not measured
  /// How many times as long two messages at once take, one each way, by size; may be empty.
  std::vector<double> both_ways = {};
};

/// Nested groups of equal size: `order[k]` is the device that comes k-th, so that groups stand together;
/// `sizes` are the devices per group, from the innermost level outwards, the last all of them.
struct DeviceGroups {
  std::vector<int> order;
  std::vector<int> sizes;
  bool operator==(const DeviceGroups&) const = default;
};

/// `cost[i][j]`: what a message between i and j costs, symmetric. Costs are sorted and cut where the next one
/// is at least `factor` times as large. A cut is a level if the cheaper links are exactly those within groups
/// of equal size; otherwise they count to the next level. Groups and their devices keep their order. O(n^2 log
/// n) for n devices and few levels.
DeviceGroups group_devices(const std::vector<std::vector<double>>& cost, double factor = 1.5);

/// A pair's cost: the geometric mean of its times over the sizes, so that latency and bandwidth count alike.
double pair_cost(std::span<const LinkSample> samples);

/// Puts the devices into the groups' order, numbers them anew, and gives each level the link that all pairs
/// have that meet first in it: samples pooled per size (median of medians, lowest low, highest high), and their
/// fit; message cost and overlap from the medians of the kept times, half duplex where the median of the
/// least `both_ways` is above kFullDuplex. Every two devices must have a pair, all with the same sizes. The
/// outermost level is named `cluster` when it joins several nodes; the largest one within a node gets `inner`;
/// others are `group of N`.
Cluster build_cluster(std::vector<Device> devices, std::span<const MeasuredPair> pairs,
                      const std::string& inner);

/// Every pair, and the all-reduce of all.
struct MeasuredLinks {
  std::vector<MeasuredPair> pairs;
  std::vector<LinkSample> all_reduce;
};
/// One pair after the other, then the all-reduce. `progress` gets a share in [0, 1].
MeasuredLinks measure_all(int devices, const std::function<MeasuredPair(int, int)>& measure_pair,
                          const std::function<std::vector<LinkSample>()>& sample_all_reduce,
                          const std::function<void(double)>& progress);
/// The same cluster, whose outermost level has the all-reduce's samples and their fit, too.
Cluster build_cluster(std::vector<Device> devices, const MeasuredLinks& links, const std::string& inner);

/// What makes the measured levels doubtful, one sentence each: fits that miss a size.
std::vector<std::string> link_findings(const Cluster& cluster);

}  // namespace pp::run
