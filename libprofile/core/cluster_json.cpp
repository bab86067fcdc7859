// The keys of pp.cluster, and what they must be together; devices and levels stand in pp.plan too.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "libprofile/core/schema/document_schema.h"
#include "libprofile/core/shared_fields.h"

namespace pp {
namespace {

void check_ids(const Cluster& cluster, const ObjectReader& reader) {
  if (cluster.devices.empty()) reader.fail("devices", "is empty; a cluster needs at least one device");
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (index(cluster.devices[i].id) == i) continue;
    reader.fail("devices", "entry " + std::to_string(i) + " has id " +
                               std::to_string(number(cluster.devices[i].id)) +
                               "; number the devices 0, 1, 2, ... in their order");
  }
}

/// Cards join the innermost groups.
void check_cards(const Cluster& cluster, const ObjectReader& reader) {
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    if (cluster.levels[i].cards == 1 || (i == 0 && cluster.levels.size() > 1)) continue;
    reader.fail("levels", "entry " + std::to_string(i) + " has " + std::to_string(cluster.levels[i].cards) +
                              " cards; they belong to the innermost of several levels, remove them");
  }
}

/// Each level's group is made of whole groups of the level inside it; the outermost one holds every device.
void check_levels(const Cluster& cluster, const ObjectReader& reader) {
  int inner = 1;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    const int devices = cluster.levels[i].devices;
    if (devices % inner != 0) {
      reader.fail("levels", "entry " + std::to_string(i) + " has groups of " + std::to_string(devices) +
                                " devices, not a multiple of the " + std::to_string(inner) +
                                " inside it; count cumulatively, from the innermost level outwards, with "
                                "the last group as if it were full");
    }
    inner = devices;
  }
  if (static_cast<std::size_t>(inner) < cluster.devices.size()) {
    reader.fail("levels", "the outermost level joins " + std::to_string(inner) + " of " +
                              std::to_string(cluster.devices.size()) +
                              " devices; add a level that joins all of them");
  }
}

/// The names of the nodes of devices [begin, end), in their order.
std::vector<std::string> nodes_of(const Cluster& cluster, std::size_t begin, std::size_t end) {
  std::vector<std::string> nodes;
  for (std::size_t d = begin; d < std::min(end, cluster.devices.size()); ++d) {
    if (nodes.empty() || nodes.back() != cluster.devices[d].node) nodes.push_back(cluster.devices[d].node);
  }
  return nodes;
}

/// Groups are equal runs of devices: where nodes are not, a run joins several of them at the rate of one. Said
/// of a group with more nodes than the first; measured rates are of the devices, whatever their nodes.
void check_nodes(const Cluster& cluster, const ObjectReader& reader) {
  for (std::size_t i = 0; i < cluster.levels.size() && !cluster.measured; ++i) {
    const auto size = static_cast<std::size_t>(cluster.levels[i].devices);
    const std::size_t most = nodes_of(cluster, 0, size).size();
    for (std::size_t begin = size; begin < cluster.devices.size(); begin += size) {
      const std::vector<std::string> nodes = nodes_of(cluster, begin, begin + size);
      if (nodes.size() <= most) continue;
      reader.fail("levels",
                  "entry " + std::to_string(i) + " joins nodes " + nodes[0] + " and " + nodes[1] +
                      " in a group: groups of a level are equal, " + std::to_string(size) +
                      " devices each; leave out nodes of other sizes, or join all devices by one level, at the "
                      "rate between nodes");
    }
  }
}

void check_cluster(Cluster& cluster, ObjectReader& reader) {
  check_ids(cluster, reader);
  check_levels(cluster, reader);
  check_nodes(cluster, reader);
  check_cards(cluster, reader);
}

constexpr Object kCluster{
    "cluster",
    defaulted<&Cluster::context>("context"),
    defaulted<&Cluster::measured>("measured"),
    key<&Cluster::devices>("devices", kDevice),
    key<&Cluster::levels>("levels", kLevel),
    check<check_cluster>(),
};

}  // namespace

void check_time(TimeStat& time, ObjectReader& reader) {
  if (time.samples > 0 && !(time.low <= time.median && time.median <= time.high))
    reader.fail("median", "must lie between low and high");
}

void check_device(Device& device, ObjectReader& reader) {
  if (!reader.has("index")) device.index = number(device.id);
  if (device.kind != DeviceKind::cpu && !device.cores.empty())
    reader.fail("cores", "belongs to cpu devices only; remove it");
}

void check_all_reduce(const MeasuredAllReduce& measured, ObjectReader& reader) {
  if (!reader.has("cached_bytes") && !reader.has("bandwidth_beyond_bytes_per_s")) return;
  reader.integer("cached_bytes");
  reader.number("bandwidth_beyond_bytes_per_s", {kPositive.min, measured.bandwidth.value});
}

void check_level(Level& level, ObjectReader& reader) {
  if (level.devices % level.cards == 0) return;
  reader.fail("cards", std::to_string(level.cards) + " cards do not serve equally many of " +
                           std::to_string(level.devices) + " devices; give a divisor of that number");
}

Keys cluster_keys() { return keys_of(kCluster); }

Cluster cluster_from_json(const Json& json) { return document_from_json(kCluster, json); }

Json to_json(const Cluster& cluster) { return document_json(kCluster, cluster); }

Cluster parse_cluster(std::string_view text) { return cluster_from_json(parse_json(text)); }

}  // namespace pp
