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
  const int devices = slot_of(cluster, static_cast<int>(cluster.devices.size()) - 1) + 1;
  if (inner >= devices) return;
  const bool full = !has_empty_slots(cluster);
  reader.fail("levels", "the outermost level joins " + std::to_string(inner) + " of " +
                            std::to_string(devices) +
                            (full ? " devices; add a level that joins all of them"
                                  : " devices, counted as if every node were as large as the largest; its "
                                    "`devices` is at least that"));
}

/// Slots ascend. Where none is given, unequal nodes get theirs; measured groups are of devices, not of nodes.
void set_slots(Cluster& cluster, const ObjectReader& reader) {
  const auto given = [](const Device& device) { return device.slot.has_value(); };
  std::vector<int> slots;
  if (std::ranges::none_of(cluster.devices, given)) {
    if (!cluster.measured) slots = slots_of_nodes(cluster);
    for (std::size_t d = 0; d < slots.size(); ++d)
      if (at(slots[d]) != d) cluster.devices[d].slot = slots[d];
    return;
  }
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const int before = slots.empty() ? -1 : slots.back();
    slots.push_back(slot_of(cluster, static_cast<int>(d)));
    if (slots.back() > before) continue;
    reader.fail("devices", "entry " + std::to_string(d) + " has slot " + std::to_string(slots.back()) +
                               ", not above the " + std::to_string(before) + " in front of it");
  }
}

void check_cluster(Cluster& cluster, ObjectReader& reader) {
  check_ids(cluster, reader);
  set_slots(cluster, reader);
  check_levels(cluster, reader);
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
