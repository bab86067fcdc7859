#include "libplan/request/machine.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// A measured all-reduce was over all devices that the level had. More of them take it over the same link, of
/// which a ring of n pays 2(n-1) latencies and moves 2(n-1)/n of the bytes.
void widen(Level& level, int devices) {
  if (level.all_reduce && devices > 1 && level.devices > 1) {
    const double steps = (devices - 1.0) / (level.devices - 1.0);
    const double share = steps * level.devices / devices;
    level.all_reduce->latency *= steps;
    level.all_reduce->bandwidth.value /= share;
    level.all_reduce->beyond.value /= share;
  }
  level.devices = devices;
}

void add_device(Cluster& cluster, Device device) {
  device.id = DeviceId{number(cluster.devices.back().id) + 1};
  const int slot = slot_of(cluster, static_cast<int>(cluster.devices.size()) - 1) + 1;
  device.slot.reset();
  if (at(slot) != cluster.devices.size()) device.slot = slot;
  cluster.devices.push_back(std::move(device));
  if (cluster.levels.empty()) return;
  Level& outermost = cluster.levels.back();
  widen(outermost, std::max(outermost.devices, slot + 1));
}

}  // namespace

Cluster first_devices(const Cluster& cluster, int devices) {
  std::vector<int> positions(at(devices));
  std::iota(positions.begin(), positions.end(), 0);
  return some_devices(cluster, positions);
}

bool has_equal_nodes(const Cluster& cluster) {
  std::map<std::string_view, int> devices;
  for (const Device& device : cluster.devices) ++devices[device.node];
  return std::ranges::all_of(devices, [&](const auto& node) { return node.second == devices.begin()->second; });
}

Cluster with_equal_nodes(const Cluster& cluster) {
  int devices = static_cast<int>(cluster.devices.size());
  while (devices > 1 && !has_equal_nodes(first_devices(cluster, devices))) --devices;
  return first_devices(cluster, devices);
}

Cluster some_devices(const Cluster& cluster, std::span<const int> positions) {
  Cluster part = cluster;
  part.devices.clear();
  if (positions.size() < cluster.devices.size()) part.copies.reset();
  std::vector<int> slots;
  for (const int position : positions) {
    slots.push_back(slot_of(cluster, position));
    part.devices.push_back(cluster.devices[at(position)]);
    part.devices.back().id = DeviceId{static_cast<int>(part.devices.size()) - 1};
  }
  const auto holds_all = [&](const Level& level) {
    return slots.front() / level.devices == slots.back() / level.devices;
  };
  const auto outermost = std::ranges::find_if(part.levels, holds_all);
  if (outermost != part.levels.end()) part.levels.erase(outermost + 1, part.levels.end());
  return with_slots(std::move(part), std::move(slots));
}

Cluster with_one_more_device(Cluster cluster) {
  Device copy = cluster.devices.back();
  copy.index += 1;
  copy.cores.clear();
  add_device(cluster, std::move(copy));
  return cluster;
}

Cluster with_one_more(Cluster cluster) {
  const std::string& last = cluster.devices.back().node;
  const auto in_node = at(static_cast<int>(std::ranges::count(cluster.devices, last, &Device::node)));
  const bool alone = in_node == cluster.devices.size();
  if (in_node == 1 || (alone && !cluster.copies) || !has_equal_nodes(cluster))
    return with_one_more_device(std::move(cluster));
  if (alone) {
    cluster.levels.push_back(cluster.copies->level);
    cluster.levels.front().cards = cluster.copies->cards;
    cluster.copies.reset();
  }
  const std::string node = last + "+";
  for (std::size_t d = cluster.devices.size() - in_node, end = cluster.devices.size(); d < end; ++d) {
    Device copy = cluster.devices[d];
    copy.node = node;
    add_device(cluster, std::move(copy));
  }
  return cluster;
}

Cluster with_bandwidth(Cluster cluster, double factor) {
  for (Level& level : cluster.levels) {
    level.bandwidth.value *= factor;
    if (!level.all_reduce) continue;
    level.all_reduce->bandwidth.value *= factor;
    level.all_reduce->beyond.value *= factor;
  }
  return cluster;
}

}  // namespace pp::plan
