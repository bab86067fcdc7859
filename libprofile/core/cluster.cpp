#include "libprofile/core/cluster.h"

#include "libprofile/core/hash.h"

namespace pp {

Cluster flat_cluster(int count, DeviceKind kind, BytesPerSecond bandwidth, Seconds latency, Bytes memory) {
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

std::string to_text(const Device& device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

std::string cluster_hash(const Cluster& cluster) { return content_hash(dump_json_compact(to_json(cluster))); }

}  // namespace pp
