#include "libprofile/core/cluster.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"

namespace pp {
namespace {

/// a, b, .. z, aa, ab, ..
std::string node_name(int node) {
  const std::string last(1, static_cast<char>('a' + node % 26));
  return node < 26 ? last : node_name(node / 26 - 1) + last;
}

}  // namespace

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
  for (Device& device : cluster.devices) {
    device.node = node_name(number(device.id) / levels.front().count);
    device.index = number(device.id) % levels.front().count;
  }
  return cluster;
}

std::string to_text(const Device& device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

std::string cluster_hash(const Cluster& cluster) { return content_hash(dump_json_compact(to_json(cluster))); }

}  // namespace pp
