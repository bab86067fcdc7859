#include "libplan/search/request/machine.h"

#include <algorithm>

namespace pp::plan {

Cluster first_devices(const Cluster& cluster, int devices) {
  Cluster part = cluster;
  part.devices.resize(static_cast<std::size_t>(devices));
  const auto outermost =
      std::ranges::find_if(part.levels, [&](const Level& level) { return level.devices >= devices; });
  if (outermost != part.levels.end()) part.levels.erase(outermost + 1, part.levels.end());
  return part;
}

Cluster with_one_more_device(Cluster cluster) {
  Device copy = cluster.devices.back();
  copy.id = DeviceId{number(copy.id) + 1};
  copy.index += 1;
  copy.cores.clear();
  cluster.devices.push_back(copy);
  if (!cluster.levels.empty()) {
    int& outermost = cluster.levels.back().devices;
    outermost = std::max(outermost, static_cast<int>(cluster.devices.size()));
  }
  return cluster;
}

}  // namespace pp::plan
