#include "libprofile/core/cluster_scale.h"

#include <algorithm>

#include "libprofile/core/counted.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp {
namespace {

[[noreturn]] void refuse_scale(const std::string& message) { throw Error(ErrorKind::usage, message); }

bool alike(const Device& a, const Device& b) {
  return a.kind == b.kind && a.model == b.model && a.memory == b.memory && a.speed == b.speed &&
         a.cores.size() == b.cores.size();
}

/// `whole_nodes`: the group is made of them.
Device joined(const Device& first, std::span<const Device> members, bool whole_nodes) {
  Device device = first;
  for (const Device& member : members) {
    if (!whole_nodes && member.node != first.node) {
      refuse_scale("tensor groups: devices " + std::to_string(number(first.id)) + " and " +
                   std::to_string(number(member.id)) + " stand on different nodes (" + first.node + ", " +
                   member.node + "); a group is of devices of one node, or of whole nodes");
    }
    device.memory = std::min(device.memory, member.memory);
    device.speed = std::min(device.speed, member.speed);
  }
  return device;
}

/// Members behind one card share it; then a group needs no more cards than it has.
void share_cards(std::vector<Level>& levels, int degree) {
  Level& inner = levels.front();
  const int behind_one = std::min(degree, inner.devices / inner.cards);
  for (std::size_t i = 1; i < levels.size(); ++i)
    levels[i].bandwidth = BytesPerSecond(levels[i].bandwidth.value / behind_one);
  inner.cards = std::clamp(inner.devices / degree, 1, inner.cards);
}

}  // namespace

Cluster with_nodes(const Cluster& cluster, int nodes) {
  if (cluster.levels.size() != 2) {
    refuse_scale("--nodes: the cluster has " + counted(std::ssize(cluster.levels), "level") +
                 ", not one within a node and one between nodes; give such a file, or --levels");
  }
  const int size = cluster.levels.front().devices;
  const std::vector<Device>& given = cluster.devices;
  if (given.size() % at(size) != 0)
    refuse_scale("--nodes: the last node has fewer than " + std::to_string(size) +
                 " devices; give whole nodes");
  for (std::size_t i = at(size); i < given.size(); ++i) {
    if (alike(given[i], given[i % at(size)])) continue;
    refuse_scale("--nodes: device " + std::to_string(i) + " differs from device " +
                 std::to_string(i % at(size)) + " of the first node; give nodes that are equal");
  }
  const std::array groups{size, nodes};
  const int count = checked_device_count(groups);
  Cluster result = cluster;
  result.devices.clear();
  for (int i = 0; i < count; ++i) {
    Device device = given[at(i % size)];
    device.id = DeviceId{i};
    device.node = node_name(i / size);
    result.devices.push_back(std::move(device));
  }
  Level& between = result.levels.back();
  if (between.devices != count) {
    between.all_reduce.reset();
    result.measured = false;
  }
  between.devices = count;
  return without_single_groups(std::move(result));
}

Cluster without_single_groups(Cluster cluster) {
  std::vector<Level> levels;
  for (const Level& level : cluster.levels) {
    if (levels.empty() || level.devices > levels.back().devices) levels.push_back(level);
  }
  if (levels.size() == 1) levels.front().cards = 1;  // they join groups, and there is one
  cluster.levels = std::move(levels);
  return cluster;
}

Cluster with_buckets(Cluster cluster, Bytes bucket) {
  for (Level& level : cluster.levels)
    if (!level.all_reduce) level.bucket = bucket;
  return cluster;
}

Cluster with_tensor_groups(const Cluster& cluster, int degree) {
  if (degree == 1) return cluster;
  const int count = static_cast<int>(cluster.devices.size());
  const int size = cluster.levels.empty() ? count : std::min(count, cluster.levels.front().devices);
  const bool whole = degree > size && degree % size == 0;  // groups of the innermost level
  if ((size % degree != 0 && !whole) || count % degree != 0) {
    refuse_scale("tensor groups of " + std::to_string(degree) + " do not divide the " +
                 std::to_string(whole ? count : size) + " devices that " +
                 (whole ? "the cluster has" : "the innermost level joins") +
                 "; profile with a degree that divides them");
  }
  Cluster result = cluster;
  result.devices.clear();
  for (int first = 0; first < count; first += degree) {
    Device device =
        joined(cluster.devices[at(first)], std::span(cluster.devices).subspan(at(first), at(degree)), whole);
    device.id = DeviceId{first / degree};
    result.devices.push_back(std::move(device));
  }
  if (result.levels.empty()) return result;
  share_cards(result.levels, degree);
  for (Level& level : result.levels) {
    level.devices = std::max(1, level.devices / degree);
    level.all_reduce.reset();
  }
  while (result.levels.size() > 1 && result.levels.front().devices == 1)
    result.levels.erase(result.levels.begin());  // each node, or each of several, is a group
  return result;
}

}  // namespace pp
