#include "libplan/cost/links.h"

#include <algorithm>
#include <bit>
#include <map>

namespace pp::plan {
namespace {

/// The slowest of the links among `devices`; of equally fast ones the largest latency.
Link slowest_among(const Cluster& cluster, std::span<const int> devices) {
  Link slowest = link_between(cluster, devices.front(), devices.back());
  const auto include = [&](int a, int b) {
    const Link link = link_between(cluster, a, b);
    if (is_better(slowest, link)) slowest = link;
  };
  // Sorted, neighbours are in different groups of a level wherever two of its devices are.
  std::vector<int> sorted(devices.begin(), devices.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 1; i < sorted.size(); ++i) include(sorted[i - 1], sorted[i]);
  return slowest;
}

Link without_latency(const Link& link) { return {link.bandwidth, {}}; }

std::vector<AllReduceForm> flat_forms(int replicas, const Link& link) {
  const Link rate = without_latency(link);
  return {{ring_all_reduce(replicas, 0, link), ring_all_reduce(replicas, 1, rate)},
          {tree_all_reduce(replicas, 0, link), tree_all_reduce(replicas, 1, rate)}};
}

/// One network card per group.
AllReduceForm two_level_form(int groups, int per_group, const Link& inside, const Link& between) {
  return {two_level_all_reduce(groups, per_group, 1, 0, inside, between),
          two_level_all_reduce(groups, per_group, 1, 1, without_latency(inside), without_latency(between))};
}

}  // namespace

double ring_all_reduce(int replicas, double bytes, const Link& link) {
  const double steps = 2.0 * (replicas - 1);
  return steps * link.latency.count() + steps / replicas * occupancy(bytes, link);
}

double tree_all_reduce(int replicas, double bytes, const Link& link) {
  if (replicas == 1) return 0;
  const int depth = std::bit_width(static_cast<unsigned>(replicas - 1));
  return 2.0 * depth * link.latency.count() + 2 * occupancy(bytes, link);
}

double two_level_all_reduce(int nodes, int per_node, int cards, double bytes, const Link& inside,
                            const Link& between) {
  const double shared = bytes / std::min(per_node, cards);
  return ring_all_reduce(per_node, bytes, inside) + ring_all_reduce(nodes, shared, between);
}

double flat_all_reduce(int replicas, double bytes, const Link& link) {
  return std::min(ring_all_reduce(replicas, bytes, link), tree_all_reduce(replicas, bytes, link));
}

Link link_of(const Level& level) {
  return {level.bandwidth, level.latency, level.message_cost, level.overlap, level.duplex};
}

Link link_between(const Cluster& cluster, int first, int second) {
  if (first == second) return {};
  for (const Level& level : cluster.levels) {
    if (first / level.devices == second / level.devices) return link_of(level);
  }
  return slowest_link(cluster);
}

Link slowest_link(const Cluster& cluster) {
  if (cluster.levels.empty()) return {};
  Link slowest = link_of(cluster.levels.front());
  for (const Level& level : cluster.levels) {
    slowest.bandwidth = std::min(slowest.bandwidth, level.bandwidth);
    slowest.latency = std::max(slowest.latency, level.latency);
    slowest.message_cost = std::max(slowest.message_cost, level.message_cost);
    slowest.overlap = std::min(slowest.overlap, level.overlap);
    if (level.duplex == Duplex::half) slowest.duplex = Duplex::half;
  }
  return slowest;
}

Link fastest_link(const Cluster& cluster) {
  if (cluster.levels.empty()) return {};
  Link fastest = link_of(cluster.levels.front());
  for (const Level& level : cluster.levels) {
    fastest.bandwidth = std::max(fastest.bandwidth, level.bandwidth);
    fastest.latency = std::min(fastest.latency, level.latency);
    fastest.message_cost = std::min(fastest.message_cost, level.message_cost);
    fastest.overlap = std::max(fastest.overlap, level.overlap);
    if (level.duplex == Duplex::full) fastest.duplex = Duplex::full;
  }
  return fastest;
}

std::vector<AllReduceForm> all_reduce_forms(const Cluster& cluster, std::span<const int> devices) {
  const int replicas = static_cast<int>(devices.size());
  if (replicas == 1 || cluster.levels.empty()) return {};
  const Link slowest = slowest_among(cluster, devices);
  std::vector<AllReduceForm> forms = flat_forms(replicas, slowest);
  std::map<int, int> per_group;
  for (const int device : devices) ++per_group[device / cluster.levels.front().devices];
  const int group = per_group.begin()->second;
  const bool even =
      std::all_of(per_group.begin(), per_group.end(), [&](const auto& g) { return g.second == group; });
  if (even && group > 1 && per_group.size() > 1) {
    forms.push_back(
        two_level_form(static_cast<int>(per_group.size()), group, link_of(cluster.levels.front()), slowest));
  }
  return forms;
}

std::vector<AllReduceForm> least_all_reduce_forms(const Cluster& cluster, int replicas) {
  if (replicas == 1 || cluster.levels.empty()) return {};
  // So many devices cross at least the innermost level that holds them.
  Cluster crossed = cluster;
  std::erase_if(crossed.levels, [&](const Level& level) { return level.devices < replicas; });
  if (crossed.levels.empty()) crossed.levels = {cluster.levels.back()};
  std::vector<AllReduceForm> forms = flat_forms(replicas, fastest_link(crossed));
  const Level& inner = cluster.levels.front();
  Cluster outside = cluster;
  outside.levels.erase(outside.levels.begin());
  for (int group = 2; group <= inner.devices && group < replicas && !outside.levels.empty(); ++group) {
    if (replicas % group == 0)
      forms.push_back(two_level_form(replicas / group, group, link_of(inner), fastest_link(outside)));
  }
  return forms;
}

Seconds all_reduce_time(const Cluster& cluster, std::span<const int> devices, Bytes bytes) {
  return Seconds(cheapest(all_reduce_forms(cluster, devices), static_cast<double>(bytes.value)));
}

ServerWays server_ways(const Cluster& cluster, std::span<const int> devices) {
  ServerWays ways;
  for (const int device : devices.subspan(1)) {
    const Link link = link_between(cluster, devices.front(), device);
    ways.latency = std::max(ways.latency, link.latency.count());
    ways.slowest = std::max(ways.slowest, occupancy(1, link));
    ways.all += occupancy(1, link);
    ways.half = ways.half || link.duplex == Duplex::half;
  }
  return ways;
}

ServerWays server_ways(int replicas, const Link& link) {
  if (replicas == 1) return {};
  const double per_byte = occupancy(1, link);
  return {link.latency.count(), per_byte, (replicas - 1) * per_byte, link.duplex == Duplex::half};
}

std::vector<int> shared_cards(const Cluster& cluster) {
  if (cluster.levels.size() < 2) return {};
  std::vector<int> cards;
  for (int device = 0; device < static_cast<int>(cluster.devices.size()); ++device)
    cards.push_back(device / cluster.levels.front().devices);
  return cards;
}

}  // namespace pp::plan
