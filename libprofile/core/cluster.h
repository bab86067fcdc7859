// The machine as a value (document pp.cluster): devices by the names that people know them by, and the links
// between them as levels from the innermost group outwards; the same machine with more nodes, or with
// neighbours joined into tensor groups.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/index.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/link.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace pp {

/// A bandwidth outside is taken for a mistake in the unit; where a link hands over by reference and has none,
/// the largest one stands for it.
inline constexpr BytesPerSecond kSmallestBandwidth(1e6), kLargestBandwidth(1e13);

struct Device {
  DeviceId id{};
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;           ///< cuda: ordinal on its node; cpu: which set of cores
  std::vector<int> cores;  ///< cpu only; empty: not bound yet
  std::string node;        ///< empty: the only one
  Bytes memory;            ///< 0: unknown, no limit
  double speed = 1.0;      ///< relative to the profiled device
  std::string model = {};  ///< words of the name that its profiles have, such as `H100`; empty: not said
  int profile = 0;         ///< whose times it has, of Profile::of_kind(); in no document
  /// Its number if every group of a level were full; absent: its position. Small nodes leave slots empty.
  std::optional<int> slot = std::nullopt;
  bool operator==(const Device&) const = default;
};

/// One measured message size of a link.
struct LinkSample {
  Bytes size;
  TimeStat time;
  bool operator==(const LinkSample&) const = default;
};

/// What adding up equal vectors of all devices takes, as latency + size/bandwidth; `size` is that of one
/// vector. Of vectors that exceed the caches, the bytes past `cached` come at `beyond`.
struct MeasuredAllReduce {
  BytesPerSecond bandwidth;
  Seconds latency{};
  double fit_residual = 0;
  std::vector<LinkSample> samples;
  double overlap = 0;  ///< share that the last backward hides of what it could hide
  Bytes cached{0};
  BytesPerSecond beyond{0};  ///< below `bandwidth`; 0: all bytes are alike
  bool operator==(const MeasuredAllReduce&) const = default;
};

/// What the sum of x bytes takes is transfer_time(x, 1, link).
inline Link link_of(const MeasuredAllReduce& sums) {
  return {.bandwidth = sums.bandwidth, .latency = sums.latency, .cached = sums.cached, .beyond = sums.beyond};
}

/// The links among the devices of one group. `devices` is cumulative: 8, then 16 for two groups of 8.
struct Level {
  std::string name;
  int devices = 1;
  BytesPerSecond bandwidth;
  Seconds latency{};
  double fit_residual =
      0;  ///< largest relative error of latency + size/bandwidth over the samples; 0 when given
  std::vector<LinkSample> samples;  ///< empty unless measured
  /// Of all devices of a group, where it was measured. Plans price all-reduces by it instead of the link.
  std::optional<MeasuredAllReduce> all_reduce = std::nullopt;
  Seconds message_cost{};  ///< this and the next two as in Link
  double overlap = 1;
  Duplex duplex = Duplex::full;
  /// Of the innermost level of several: network cards of a group, by which its devices reach the other groups.
  /// Each serves equally many consecutive devices.
  int cards = 1;
  Bytes bucket{0};  ///< as in Link: of the trainer, in no document
  bool operator==(const Level&) const = default;
};

/// How several machines like this one would be joined; `cards` of each, per innermost group.
struct Copies {
  Level level;
  int cards = 1;
  bool operator==(const Copies&) const = default;
};

struct Cluster {
  Context context;
  bool measured = false;
  std::vector<Device> devices;
  std::vector<Level> levels;
  std::optional<Copies> copies = std::nullopt;  ///< in documents a last level of one group
  bool operator==(const Cluster&) const = default;
};

/// Groups of a level are equal runs of slots: a device is in group slot / level.devices.
inline int slot_of(const Cluster& cluster, int position) {
  return cluster.devices[at(position)].slot.value_or(position);
}
/// The positions of the devices, by slot up to the last one; -1 for an empty slot.
std::vector<int> by_slot(const Cluster& cluster);
inline bool has_empty_slots(const Cluster& cluster) {
  return slot_of(cluster, static_cast<int>(cluster.devices.size()) - 1) >= std::ssize(cluster.devices);
}
/// Gives each device a slot, in ascending order. Of equal places those left empty move to the end.
Cluster with_slots(Cluster cluster, std::vector<int> slots);
/// Slots for nodes that groups of consecutive devices would mix, as each holds at most one group of the level
/// that fits the largest node: each node begins a group. Empty where devices stand in groups as they are.
std::vector<int> slots_of_nodes(const Cluster& cluster);

/// Most abstract devices that are planned for.
inline constexpr int kDeviceLimit = 65'536;

/// The product of the counts, each at least 1. Throws pp::Error (usage) above `most`.
int checked_device_count(std::span<const int> groups, int most = kDeviceLimit);

/// `count` equal abstract devices joined by one level. `memory` 0: no limit.
Cluster flat_cluster(int count, DeviceKind kind, BytesPerSecond bandwidth, Seconds latency, Bytes memory);

/// `count` groups of the level inside it (innermost: devices), joined at this rate. `cards`: of the second
/// level, the network cards of each group inside, each of this rate.
struct LevelSpec {
  int count = 1;
  BytesPerSecond bandwidth;
  int cards = 1;
  bool operator==(const LevelSpec&) const = default;
};

/// a, b, .. z, aa, ab, ..
std::string node_name(int node);

/// Equal abstract devices in nested groups, innermost first: {8, 2} is two nodes of eight. The groups of the
/// innermost of several levels are nodes `a`, `b`, ... Latency and memory are those of every level and device.
Cluster nested_cluster(std::span<const LevelSpec> levels, DeviceKind kind, Seconds latency, Bytes memory);

/// The same machine as devices of `factor` times as many cores: each is made of neighbours of one node, within
/// a group of the innermost level; those left over are in no device. Memory adds up, the slowest speed counts,
/// links are those between the cores. Cores that are left open are numbered from 0 on each node, `cores` for
/// each of the devices given. Throws pp::Error (usage) when a group holds fewer than `factor` of them, or
/// neighbours stand on different nodes.
Cluster with_wider_devices(const Cluster& cluster, int factor, int cores);

/// `cpu:1`, `cuda:0`
std::string to_text(const Device& device);

Cluster cluster_from_json(const Json& json);
Json to_json(const Cluster& cluster);
Cluster parse_cluster(std::string_view text);
std::string cluster_hash(const Cluster& cluster);

/// Copies of the first node: the group of the innermost of two levels. The outer level, which in a
/// document of one node says how nodes would be joined, joins all of them; of one node it goes away. What was
/// measured of the sums of another number of nodes goes with it. Throws pp::Error (usage): not two levels,
/// nodes that differ, more than kDeviceLimit devices.
Cluster with_nodes(const Cluster& cluster, int nodes);

/// The same cluster without levels that join a single group of the level inside them; the last becomes
/// `copies`.
Cluster without_single_groups(Cluster cluster);

/// Gradients are summed in buckets, where sums are not measured.
Cluster with_buckets(Cluster cluster, Bytes bucket);

/// Each device of the result is `degree` neighbours of one group of the innermost level, or as many
/// groups as make `degree` devices, which compute every layer together. Memory is that of one member, the
/// slowest speed counts. What a group sends to another, or adds up with it, goes from member to member side by
/// side, each part over the links of its own member; where several members sit behind one network card they
/// share its bandwidth. Measured all-reduces are left out: they are of another number of devices. Throws
/// pp::Error (usage) where the innermost groups neither divide into such neighbours nor make them up.
Cluster with_groups(const Cluster& cluster, int degree);

/// `cuda:0`, or `a/cuda:0` where the devices stand on several nodes.
std::string device_name(std::span<const Device> devices, const Device& device);

/// Whether all words of `model` are words of a profiled device's name, in capital letters or not: `H100` is one
/// of `NVIDIA H100 80GB HBM3`, not of `NVIDIA GH200`. So is no word at all.
bool names_model(std::string_view profiled, std::string_view model);

}  // namespace pp
