#include "libplan/cost/links.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace pp::plan {
namespace {

using Levels = std::span<const Level>;
using LinkOf = Link (*)(const Level&);

Link slowest_of(Levels levels, LinkOf link_of_level) {
  if (levels.empty()) return {};
  Link slowest = link_of_level(levels.front());
  for (const Level& level : levels) {
    const Link link = link_of_level(level);
    slowest.bandwidth = std::min(slowest.bandwidth, link.bandwidth);
    slowest.latency = std::max(slowest.latency, link.latency);
    slowest.message_cost = std::max(slowest.message_cost, link.message_cost);
    slowest.overlap = std::min(slowest.overlap, link.overlap);
    if (link.duplex == Duplex::half) slowest.duplex = Duplex::half;
    if (link.beyond.value == 0) continue;
    const bool first = slowest.beyond.value == 0;
    slowest.cached = first ? link.cached : std::min(slowest.cached, link.cached);
    slowest.beyond = first ? link.beyond : std::min(slowest.beyond, link.beyond);
  }
  return slowest;
}

Link fastest_of(Levels levels, LinkOf link_of_level) {
  if (levels.empty()) return {};
  Link fastest = link_of_level(levels.front());
  for (const Level& level : levels) {
    const Link link = link_of_level(level);
    fastest.bandwidth = std::max(fastest.bandwidth, link.bandwidth);
    fastest.latency = std::min(fastest.latency, link.latency);
    fastest.message_cost = std::min(fastest.message_cost, link.message_cost);
    fastest.overlap = std::max(fastest.overlap, link.overlap);
    if (link.duplex == Duplex::full) fastest.duplex = Duplex::full;
    const bool alike = fastest.beyond.value == 0 || link.beyond.value == 0;
    fastest.cached = alike ? Bytes(0) : std::max(fastest.cached, link.cached);
    fastest.beyond = alike ? BytesPerSecond(0) : std::max(fastest.beyond, link.beyond);
  }
  return fastest;
}

/// The innermost level whose groups of consecutive devices hold both; null for one device, and without levels.
const Level* level_between(const Cluster& cluster, int first, int second) {
  if (first == second || cluster.levels.empty()) return nullptr;
  for (const Level& level : cluster.levels) {
    if (first / level.devices == second / level.devices) return &level;
  }
  return nullptr;
}

/// The slowest of the links for sums among `devices`; of equally fast ones the largest latency.
Link slowest_among(const Cluster& cluster, std::span<const int> devices) {
  const auto link = [&](int a, int b) {
    const Level* level = level_between(cluster, a, b);
    return level != nullptr ? sum_link_of(*level) : link_between(cluster, a, b);
  };
  Link slowest = link(devices.front(), devices.back());
  const auto include = [&](int a, int b) {
    const Link other = link(a, b);
    if (is_better(slowest, other)) slowest = other;
  };
  // Sorted, neighbours are in different groups of a level wherever two of its devices are.
  std::vector<int> sorted(devices.begin(), devices.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 1; i < sorted.size(); ++i) include(sorted[i - 1], sorted[i]);
  return slowest;
}

/// `passes` messages one after the other, and `share` of all bytes over the link.
AllReduceForm form_of(double passes, double share, const Link& link) {
  const double fixed = passes * link.latency.count();
  double per_byte = link.bandwidth.value == 0 ? 0 : share / link.bandwidth.value;
  if (link.bucket > Bytes(0)) per_byte += fixed / static_cast<double>(link.bucket.value);
  return {fixed,
          per_byte,
          {AllReduceForm::Excess{static_cast<double>(link.cached.value), share * excess_per_byte(link)}}};
}

}  // namespace

bool AllReduceForm::undercuts(const AllReduceForm& other) const {
  const auto no_later = [](const Excess& mine, const Excess& theirs) {
    return mine.per_byte == 0 || (mine.from >= theirs.from && mine.per_byte <= theirs.per_byte);
  };
  return halves >= other.halves && fixed <= other.fixed && per_byte <= other.per_byte &&
         std::ranges::equal(excess, other.excess, no_later);
}

AllReduceForm ring_all_reduce(int replicas, const Link& link) {
  const double steps = 2.0 * (replicas - 1);
  return form_of(steps, steps / replicas, link);
}

AllReduceForm tree_all_reduce(int replicas, const Link& link) {
  if (replicas == 1) return {};
  AllReduceForm form = form_of(2.0 * std::bit_width(static_cast<unsigned>(replicas - 1)), 2, link);
  form.halves = false;
  return form;
}

AllReduceForm two_level_all_reduce(int nodes, int per_node, int cards, const Link& inside,
                                   const Link& between) {
  const AllReduceForm within = ring_all_reduce(per_node, inside), across = ring_all_reduce(nodes, between);
  const double shared = std::min(per_node, cards);  // so many cards each carry a part of the bytes
  const auto [from, per_byte] = across.excess.front();
  return {within.fixed + across.fixed,
          within.per_byte + across.per_byte / shared,
          {within.excess.front(), {from * shared, per_byte / shared}}};
}

Link link_of(const Level& level) {
  return {level.bandwidth, level.latency, level.message_cost, level.overlap, level.duplex};
}

// A ring of n takes 2(n-1) latencies and moves 2(n-1)/n of the bytes.
Link sum_link_of(const Level& level) {
  Link link = link_of(level);
  link.bucket = level.bucket;
  if (!level.all_reduce || level.devices < 2) return link;
  const double steps = 2.0 * (level.devices - 1);
  link.latency = level.all_reduce->latency / steps;
  const double share = steps / level.devices;
  link.bandwidth = BytesPerSecond(share * level.all_reduce->bandwidth.value);
  link.cached = level.all_reduce->cached;
  link.beyond = BytesPerSecond(share * level.all_reduce->beyond.value);
  return link;
}

Link link_between(const Cluster& cluster, int first, int second) {
  if (first == second) return {};
  const Level* level = level_between(cluster, first, second);
  return level != nullptr ? link_of(*level) : slowest_link(cluster);
}

Link slowest_link(const Cluster& cluster) { return slowest_of(cluster.levels, link_of); }
Link fastest_link(const Cluster& cluster) { return fastest_of(cluster.levels, link_of); }
Links slowest_links(const Cluster& cluster) {
  return {slowest_of(cluster.levels, link_of), slowest_of(cluster.levels, sum_link_of)};
}
Links fastest_links(const Cluster& cluster) {
  return {fastest_of(cluster.levels, link_of), fastest_of(cluster.levels, sum_link_of)};
}

std::vector<AllReduceForm> all_reduce_forms(const Cluster& cluster, std::span<const int> devices) {
  const int replicas = static_cast<int>(devices.size());
  if (replicas == 1 || cluster.levels.empty()) return {};
  const Link slowest = slowest_among(cluster, devices);
  std::vector<AllReduceForm> forms{ring_all_reduce(replicas, slowest), tree_all_reduce(replicas, slowest)};
  const Level& inner = cluster.levels.front();
  struct Group {
    int devices = 0;
    std::set<int> cards;
  };
  std::map<int, Group> groups;
  for (const int device : devices) {
    Group& group = groups[device / inner.devices];
    ++group.devices;
    group.cards.insert(device / (inner.devices / inner.cards));
  }
  const Group& first = groups.begin()->second;
  const bool even = std::ranges::all_of(groups, [&](const auto& g) {
    return g.second.devices == first.devices && g.second.cards.size() == first.cards.size();
  });
  if (even && first.devices > 1 && groups.size() > 1) {
    forms.push_back(two_level_all_reduce(static_cast<int>(groups.size()), first.devices,
                                         static_cast<int>(first.cards.size()), sum_link_of(inner), slowest));
  }
  return forms;
}

std::vector<AllReduceForm> least_all_reduce_forms(const Cluster& cluster, int replicas) {
  if (replicas == 1 || cluster.levels.empty()) return {};
  // So many devices cross at least the innermost level that holds them.
  const Levels levels(cluster.levels);
  const auto holds = [&](const Level& level) { return level.devices >= replicas; };
  const auto inside = std::ranges::find_if(levels.first(levels.size() - 1), holds) - levels.begin();
  const Link fastest = fastest_of(levels.subspan(at(inside)), sum_link_of);
  std::vector<AllReduceForm> forms{ring_all_reduce(replicas, fastest), tree_all_reduce(replicas, fastest)};
  const Level& inner = cluster.levels.front();
  const Levels outside = levels.subspan(1);
  for (int group = 2; group <= inner.devices && group < replicas && !outside.empty(); ++group) {
    if (replicas % group == 0) {
      forms.push_back(two_level_all_reduce(replicas / group, group, inner.cards, sum_link_of(inner),
                                           fastest_of(outside, sum_link_of)));
    }
  }
  return forms;
}

Seconds all_reduce_time(const Cluster& cluster, std::span<const int> devices, const Reduction& reduction) {
  return Seconds(cheapest(all_reduce_forms(cluster, devices), reduction));
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

NetworkCards network_cards(const Cluster& cluster) {
  if (cluster.levels.size() < 2) return {};
  const Level& inner = cluster.levels.front();
  NetworkCards cards{.of = {}, .per_group = inner.cards};
  for (int device = 0; device < static_cast<int>(cluster.devices.size()); ++device)
    cards.of.push_back(device / (inner.devices / inner.cards));
  return cards;
}

}  // namespace pp::plan
