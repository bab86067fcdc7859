// Where devices stand in the groups of a cluster's levels when nodes hold different numbers of them.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"

namespace pp {
namespace {

/// Sizes of nested groups from the outside in: all devices, levels, what is behind one card, one device.
std::vector<int> nested_sizes(const Cluster& cluster) {
  std::vector<int> sizes{1};
  if (!cluster.levels.empty()) sizes.push_back(cluster.levels.front().devices / cluster.levels.front().cards);
  for (const Level& level : cluster.levels) sizes.push_back(level.devices);
  sizes.push_back(std::numeric_limits<int>::max());
  std::ranges::reverse(sizes);
  return sizes;
}

/// Groups move to the front of the group around them, in their order: which of equal places they have is all
/// that changes.
std::vector<int> moved_up(const std::vector<int>& slots, const std::vector<int>& sizes) {
  std::vector<int> result(slots.size(), 0);
  for (std::size_t s = 1; s < sizes.size(); ++s) {
    std::map<int, std::set<int>> inside;  // by group around it
    for (const int slot : slots) inside[slot / sizes[s - 1]].insert(slot / sizes[s]);
    for (std::size_t d = 0; d < slots.size(); ++d) {
      const std::set<int>& groups = inside[slots[d] / sizes[s - 1]];
      const auto rank = std::distance(groups.begin(), groups.find(slots[d] / sizes[s]));
      result[d] += static_cast<int>(rank) * sizes[s];
    }
  }
  return result;
}

/// A run of devices of one node.
struct NodeRun {
  int begin = 0, end = 0;
};

std::vector<NodeRun> node_runs(const Cluster& cluster) {
  std::vector<NodeRun> runs;
  for (int d = 0; d < static_cast<int>(cluster.devices.size()); ++d) {
    const bool same = d > 0 && cluster.devices[at(d)].node == cluster.devices[at(d - 1)].node;
    if (!same) runs.push_back({d, d});
    runs.back().end = d + 1;
  }
  return runs;
}

/// Whether groups of so many consecutive devices mix nodes: one has more of them than the first group, or
/// a part of a node that goes on in the next group.
bool mixes_nodes(const std::vector<NodeRun>& runs, int size) {
  std::map<int, int> nodes;
  for (const NodeRun& run : runs) {
    const int first = run.begin / size, last = (run.end - 1) / size;
    if (first != last && run.begin % size != 0) return true;
    for (int group = first; group <= last; ++group) ++nodes[group];
  }
  return std::ranges::any_of(nodes, [&](const auto& group) { return group.second > nodes.at(0); });
}

}  // namespace

std::vector<int> by_slot(const Cluster& cluster) {
  std::vector<int> positions;
  for (int d = 0; d < static_cast<int>(cluster.devices.size()); ++d) {
    positions.resize(at(slot_of(cluster, d)), -1);
    positions.push_back(d);
  }
  return positions;
}

Cluster with_slots(Cluster cluster, std::vector<int> slots) {
  slots = moved_up(slots, nested_sizes(cluster));
  for (std::size_t d = 0; d < slots.size(); ++d) {
    std::optional<int>& slot = cluster.devices[d].slot;
    slot.reset();
    if (at(slots[d]) != d) slot = slots[d];
  }
  return cluster;
}

std::vector<int> slots_of_nodes(const Cluster& cluster) {
  const std::vector<NodeRun> runs = node_runs(cluster);
  const auto mixed = [&](const Level& level) { return mixes_nodes(runs, level.devices); };
  if (cluster.levels.size() < 2 || std::ranges::none_of(cluster.levels, mixed)) return {};
  int largest = 0;
  for (const NodeRun& run : runs) largest = std::max(largest, run.end - run.begin);
  const auto fits = [&](const Level& level) { return level.devices >= largest; };
  const auto inside = std::span(cluster.levels).first(cluster.levels.size() - 1);
  const auto level = std::ranges::find_if(inside, fits);
  const int size = level != inside.end() ? level->devices : inside.back().devices;
  checked_device_count(std::array{static_cast<int>(runs.size()), size});  // that full groups would have
  std::vector<int> slots;
  for (const NodeRun& run : runs) {
    const int begin = slots.empty() ? 0 : (slots.back() / size + 1) * size;
    for (int d = run.begin; d < run.end; ++d) slots.push_back(begin + d - run.begin);
  }
  return slots;
}

}  // namespace pp
