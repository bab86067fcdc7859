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

/// Of abstract devices.
void check_count(std::int64_t devices) {
  constexpr std::int64_t kMost = 65'536;
  if (devices <= kMost) return;
  throw Error(ErrorKind::usage, std::to_string(devices) + " devices exceed the limit of " +
                                    std::to_string(kMost) + "; plan for a smaller cluster");
}

}  // namespace

Cluster flat_cluster(int count, DeviceKind kind, BytesPerSecond bandwidth, Seconds latency, Bytes memory) {
  check_count(count);
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
  std::int64_t product = 1;
  for (const LevelSpec& level : levels) check_count(product *= level.count);
  const int devices = static_cast<int>(product);
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
