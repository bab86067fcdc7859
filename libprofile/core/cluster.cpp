#include "libprofile/core/cluster.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/hash.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

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
  std::vector<int> slots;
  for (int begin = 0, end = 0; begin < count; begin = end) {
    const int own = slot_of(cluster, begin) / group;
    while (end < count && slot_of(cluster, end) / group == own) ++end;
    for (int first = begin; first + factor <= end; first += factor) {
      slots.push_back(own * wide + (first - begin) / factor);
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
  return with_slots(std::move(result), std::move(slots));
}

std::string to_text(const Device& device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

std::string cluster_hash(const Cluster& cluster) { return content_hash(dump_json_compact(to_json(cluster))); }

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
  if (given.size() % at(size) != 0 || has_empty_slots(cluster))
    refuse_scale("--nodes: a node has fewer than " + std::to_string(size) + " devices; give whole nodes");
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
  if (levels.size() < cluster.levels.size() &&
      cluster.levels.back().devices == cluster.levels.end()[-2].devices)
    cluster.copies = {cluster.levels.back(), cluster.levels.front().cards};
  if (levels.size() == 1) levels.front().cards = 1;  // they join groups, and there is one
  cluster.levels = std::move(levels);
  return cluster;
}

Cluster with_buckets(Cluster cluster, Bytes bucket) {
  for (Level& level : cluster.levels)
    if (!level.all_reduce) level.bucket = bucket;
  return cluster;
}

Cluster with_groups(const Cluster& cluster, int degree) {
  if (degree == 1) return cluster;
  const int count = static_cast<int>(cluster.devices.size());
  const int size = cluster.levels.empty() ? count : std::min(count, cluster.levels.front().devices);
  const bool whole = degree > size && degree % size == 0;  // groups of the innermost level
  const bool of_level = size % degree != 0 && !whole;
  if (of_level || count % degree != 0) {
    refuse_scale("groups of " + std::to_string(degree) + " do not divide the " +
                 std::to_string(of_level ? size : count) + " devices that " +
                 (of_level ? "the innermost level joins" : "the cluster has") +
                 "; profile with a degree that divides them");
  }
  Cluster result = cluster;
  result.devices.clear();
  if (cluster.copies) {
    result.copies.reset();
    result.levels.push_back(cluster.copies->level);
    result.levels.front().cards = cluster.copies->cards;
  }
  std::vector<int> slots;
  for (int first = 0; first < count; first += degree) {
    const int begin = slot_of(cluster, first), end = slot_of(cluster, first + degree - 1) + 1;
    if (begin % degree != 0 || end - begin != degree) {
      refuse_scale("groups of " + std::to_string(degree) + " do not divide the devices of node " +
                   cluster.devices[at(first)].node + "; profile with a degree that divides them");
    }
    slots.push_back(begin / degree);
    Device device =
        joined(cluster.devices[at(first)], std::span(cluster.devices).subspan(at(first), at(degree)), whole);
    device.id = DeviceId{first / degree};
    result.devices.push_back(std::move(device));
  }
  if (!result.levels.empty()) share_cards(result.levels, degree);
  for (Level& level : result.levels) {
    level.devices = std::max(1, level.devices / degree);
    level.all_reduce.reset();
  }
  while (result.levels.size() > 1 && result.levels.front().devices == 1)
    result.levels.erase(result.levels.begin());  // each node, or each of several, is a group
  result = with_slots(std::move(result), std::move(slots));
  return cluster.copies ? without_single_groups(std::move(result)) : result;
}

namespace {

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      word += static_cast<char>(std::tolower(letter));
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  words.insert(word);
  words.erase("");
  return words;
}

}  // namespace

std::string device_name(std::span<const Device> devices, const Device& device) {
  const auto elsewhere = [&](const Device& other) { return other.node != device.node; };
  const bool several = !device.node.empty() && std::ranges::any_of(devices, elsewhere);
  return (several ? device.node + "/" : "") + to_text(device);
}

bool names_model(std::string_view profiled, std::string_view model) {
  return std::ranges::includes(words_of(profiled), words_of(model));
}

}  // namespace pp
