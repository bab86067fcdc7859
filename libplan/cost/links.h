// The links between devices and what all-reduces cost over them; and, where operations took longer than
// promised, whether the layers or the devices are the cause.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/core/link.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// One way to reduce W bytes: fixed + per_byte * W seconds, and more for what exceeds the caches of the devices
/// within a node, and of the nodes.
struct AllReduceForm {
  struct Excess {
    double from = 0;      ///< bytes
    double per_byte = 0;  ///< seconds, of those past them
  };
  double fixed = 0;
  double per_byte = 0;
  std::array<Excess, 2> excess{};
  bool halves = true;  ///< it is a reduce-scatter and an all-gather, each of half the cost

  /// Does not fall in `bytes`, in doubles too.
  double seconds(double bytes) const {
    double time = fixed + per_byte * bytes;
    for (const Excess& one : excess) time += one.per_byte * std::max(0.0, bytes - one.from);
    return time;
  }
  /// Whether it takes no longer than the other one, whatever the bytes.
  bool undercuts(const AllReduceForm& other) const;
};

/// Patarasuk and Yuan (JPDC 2009): 2(r-1) alpha + 2(r-1)/r W/beta. 0 for one replica.
AllReduceForm ring_all_reduce(int replicas, const Link& link);
/// 2 ceil(log2 r) alpha + 2 W/beta. 0 for one replica.
AllReduceForm tree_all_reduce(int replicas, const Link& link);
/// A ring inside each of `nodes` nodes with `per_node` replicas, then one across them over `cards` network
/// cards a node.
AllReduceForm two_level_all_reduce(int nodes, int per_node, int cards, const Link& inside, const Link& between);

Link link_of(const Level& level);
/// The link over which a ring of all devices of the level takes what their all-reduce was measured to take;
/// that of messages where it was not measured.
Link sum_link_of(const Level& level);
/// The link between two positions of the cluster's device list: the innermost level whose groups of consecutive
/// devices hold both. A free and instant link from a device to itself, and in a cluster without levels.
Link link_between(const Cluster& cluster, int first, int second);
/// Slowest (least bandwidth, most latency, dearest messages, least overlap, half duplex) and fastest over all
/// levels.
Link slowest_link(const Cluster& cluster);
Link fastest_link(const Cluster& cluster);

/// One kind of link for all pairs of devices, and for all their all-reduces.
struct Links {
  Link messages, sums;
  bool operator==(const Links&) const = default;
};
/// Of all levels, and of their sum links.
Links slowest_links(const Cluster& cluster);
Links fastest_links(const Cluster& cluster);

/// The forms that exist for these devices (positions in the cluster): ring and tree over their slowest link,
/// and two levels when they fill groups of the innermost level evenly. None for one device, or without levels.
std::vector<AllReduceForm> all_reduce_forms(const Cluster& cluster, std::span<const int> devices);
/// Forms no dearer than those of any `replicas` devices of the cluster: what a bound may count.
std::vector<AllReduceForm> least_all_reduce_forms(const Cluster& cluster, int replicas);
/// What replicas exchange per step, in bytes. Where they share the optimizer's state, each adds up the
/// gradients of its part and gives the new weights to the others: (q-1)/q (G + W) in place of an all-reduce's
/// 2(q-1)/q G.
struct Reduction {
  double gradients = 0;
  double weights = 0;  ///< trained ones
  bool sharded = false;
  /// As many bytes of an all-reduce cost as much.
  double bytes() const { return sharded ? (gradients + weights) / 2 : gradients; }
};
/// Of the cheapest form; 0 without any. Does not fall in the bytes, in doubles too.
inline double cheapest(std::span<const AllReduceForm> forms, const Reduction& reduction) {
  double best = forms.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (const AllReduceForm& form : forms) {
    if (form.halves || !reduction.sharded) best = std::min(best, form.seconds(reduction.bytes()));
  }
  return best;
}
/// Of the cheapest form that exists for these devices.
Seconds all_reduce_time(const Cluster& cluster, std::span<const int> devices, const Reduction& reduction);
/// Of an all-reduce.
inline Seconds all_reduce_time(const Cluster& cluster, std::span<const int> devices, Bytes bytes) {
  return all_reduce_time(cluster, devices, Reduction{static_cast<double>(bytes.value)});
}

/// The ways between replicas and a parameter server, which is on the device of the first one. Each replica
/// pushes its gradients there, W bytes, and fetches as many; the first one does so within its device.
struct ServerWays {
  double latency = 0;  ///< of the longest one
  double slowest = 0;  ///< seconds per byte
  double all = 0;      ///< seconds per byte of all of them, one after the other through the server's port
  bool half = false;   ///< that serves both directions in turn

  /// Seconds that a replica waits where all come at once: 2 latency + 2 W all.
  double together(double bytes) const { return 2 * (latency + all * bytes); }
  /// Where each comes when it has computed for `compute` seconds: for its own way there and back, or as long as
  /// the port needs for all of them.
  double in_turns(double bytes, double compute) const {
    return std::max(2 * (latency + slowest * bytes), (half ? 2 : 1) * all * bytes - compute);
  }
};
ServerWays server_ways(const Cluster& cluster, std::span<const int> devices);
/// Of replicas behind one kind of link.
ServerWays server_ways(int replicas, const Link& link);

/// The network cards through which the devices of innermost groups reach other groups.
struct NetworkCards {
  std::vector<int> of;  ///< by device; empty in a cluster of one level, which has none
  int per_group = 1;    ///< cards of group g: g * per_group and so on

  int group(int device) const { return of[at(device)] / per_group; }
  /// Whether what passes between the two devices goes through their cards.
  bool between(int a, int b) const { return !of.empty() && group(a) != group(b); }
};
NetworkCards network_cards(const Cluster& cluster);

/// What the operations `row` took on `column`, over what was promised.
struct TwoWayCell {
  int row = 0;
  int column = 0;
  double ratio = 1;  ///< above 0
};

/// Rows are the operations of layers, the same at all times. A column is a device during one run: another run
/// may find it slower.
struct TwoWayTable {
  int rows = 0;
  std::vector<int> devices;  ///< of each column, any numbers
  std::vector<TwoWayCell> cells;
};

/// A cell is the product of its row's and its column's factor, but for noise; 1 where nothing was measured.
struct TwoWayFactors {
  std::vector<double> rows;
  std::vector<double> columns;  ///< above 1: the device is slower than promised
};

/// The factor by which promises may be off without a device being at fault.
inline constexpr double kUsualError = 1.4;

/// Median polish of the logarithms (J. W. Tukey, Exploratory Data Analysis, 1977, ch. 11): medians of columns
/// and of rows are taken off in turn until none is left. Of two values in the middle the one nearer to the
/// promise counts, so that one kind of operation alone blames no device; their mean where all cells together
/// are closer to the factors so.
///
/// Only differences between columns that share rows, directly or through others, are measured; how much all of
/// such a group has in common may be the layers' or the devices'. The rules, the first that holds:
/// - Several devices ran the same layers: their lower median is as fast as promised, the rest is the layers'.
/// - One device ran them alone: what it has beyond kUsualError over what the machine's columns have in common
///   (their median) is the device's.
/// - All else is the layers'.
/// At most 200 sweeps of O(cells) each; two where nothing is off.
TwoWayFactors two_way_factors(const TwoWayTable& table);

}  // namespace pp::plan
