#include "libprofile/core/cluster.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"

namespace pp {
namespace {

/// Those of the device, or of its place among the devices of its node.
std::vector<int> cores_of(const Device& device, int place, int cores) {
  if (!device.cores.empty()) return device.cores;
  std::vector<int> numbers;
  for (int i = 0; i < cores; ++i) numbers.push_back(place * cores + i);
  return numbers;
}

/// One device of several; `place`: of the first of them on its node.
Device joined(std::span<const Device> parts, int place, int cores) {
  Device device = parts.front();
  device.cores.clear();
  device.memory = Bytes(0);
  for (const Device& part : parts) {
    if (part.node != device.node) {
      throw Error(ErrorKind::usage, "devices " + std::to_string(number(device.id)) + " and " +
                                        std::to_string(number(part.id)) + " stand on different nodes (" +
                                        device.node + ", " + part.node + ") and make no device of more cores");
    }
    const std::vector<int> own = cores_of(part, place++, cores);
    device.cores.insert(device.cores.end(), own.begin(), own.end());
    device.memory += part.memory;
    device.speed = std::min(device.speed, part.speed);
  }
  return device;
}

}  // namespace

std::string node_name(int node) {
  const std::string last(1, static_cast<char>('a' + node % 26));
  return node < 26 ? last : node_name(node / 26 - 1) + last;
}

int checked_device_count(std::span<const int> groups, int most) {
  std::int64_t product = 1;
  for (const int count : groups) {
    product *= count;
    if (product <= most) continue;
    throw Error(ErrorKind::usage, std::to_string(product) + " devices exceed the limit of " +
                                      std::to_string(most) + "; plan for a smaller cluster");
  }
  return static_cast<int>(product);
}

Cluster flat_cluster(int count, DeviceKind kind, BytesPerSecond bandwidth, Seconds latency, Bytes memory) {
  checked_device_count({&count, 1});
  Cluster cluster;
  for (int i = 0; i < count; ++i) {
    Device device;
    device.id = DeviceId{i};
    device.kind = kind;
    device.index = i;
    device.memory = memory;
    cluster.devices.push_back(std::move(device));
  }
  Level level;
  level.name = "flat";
  level.devices = count;
  level.bandwidth = bandwidth;
  level.latency = latency;
  cluster.levels.push_back(std::move(level));
  return cluster;
}

Cluster nested_cluster(std::span<const LevelSpec> levels, DeviceKind kind, Seconds latency, Bytes memory) {
  std::vector<int> counts;
  for (const LevelSpec& level : levels) counts.push_back(level.count);
  const int devices = checked_device_count(counts);
  Cluster cluster = flat_cluster(devices, kind, BytesPerSecond(0), latency, memory);
  Level level = cluster.levels.front();
  cluster.levels.clear();
  level.devices = 1;
  for (const LevelSpec& spec : levels) {
    level.devices *= spec.count;
    level.bandwidth = spec.bandwidth;
    level.name = "level " + std::to_string(cluster.levels.size());
    cluster.levels.push_back(level);
  }
  if (levels.size() < 2) return cluster;
  cluster.levels.front().cards = levels[1].cards;
  for (Device& device : cluster.devices) {
    device.node = node_name(number(device.id) / levels.front().count);
    device.index = number(device.id) % levels.front().count;
  }
  return cluster;
}

Cluster with_wider_devices(const Cluster& cluster, int factor, int cores) {
  const int count = static_cast<int>(cluster.devices.size());
  const int group = cluster.levels.empty() ? count : std::min(count, cluster.levels.front().devices);
  const int wide = group / factor;
  if (wide == 0) {
    throw Error(ErrorKind::usage, "groups of " + std::to_string(group) + " devices make none of " +
                                      std::to_string(factor) + " times as many cores");
  }
  Cluster result = cluster;
  result.devices.clear();
  std::map<std::string, int> narrow_of_node, wide_of_node;
  for (int begin = 0; begin < count; begin += group) {
    const int end = std::min(begin + group, count);
    for (int first = begin; first + factor <= end; first += factor) {
      const std::span parts(cluster.devices.begin() + first, static_cast<std::size_t>(factor));
      int& place = narrow_of_node[parts.front().node];
      Device device = joined(parts, place, cores);
      place += factor;
      device.id = DeviceId{static_cast<int>(result.devices.size())};
      device.index = wide_of_node[device.node]++;
      result.devices.push_back(std::move(device));
    }
  }
  for (Level& level : result.levels) {
    level.devices = std::max(1, level.devices / group) * wide;
    level.cards = std::gcd(level.cards, level.devices);  // wide devices may need to share one
  }
  return result;
}

std::string to_text(const Device& device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

std::string cluster_hash(const Cluster& cluster) { return content_hash(dump_json_compact(to_json(cluster))); }

}  // namespace pp
