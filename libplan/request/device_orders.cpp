#include "libplan/request/device_orders.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr std::size_t kMostOrders = 24;
constexpr int kEnumerated = 16;  ///< devices; more have more orders than that, or only named ones that matter
constexpr int kMostClasses = 4;

using Order = std::vector<int>;

/// What sets a device apart wherever it stands: the fastest and largest first.
std::vector<int> classes_of(const Cluster& cluster, std::span<const std::int64_t> bytes) {
  const auto key_of = [&](std::size_t d) {
    return std::tuple(-cluster.devices[d].speed, cluster.devices[d].profile, -bytes[d]);
  };
  std::map<std::tuple<double, int, std::int64_t>, int> ranks;
  for (std::size_t d = 0; d < bytes.size(); ++d) ranks[key_of(d)] = 0;
  int next = 0;
  for (auto& [key, rank] : ranks) rank = next++;
  std::vector<int> classes;
  for (std::size_t d = 0; d < bytes.size(); ++d) classes.push_back(ranks.at(key_of(d)));
  return classes;
}

int node_size(const Cluster& cluster) {
  return cluster.levels.size() < 2 ? static_cast<int>(cluster.devices.size()) : cluster.levels.front().devices;
}

/// Which devices no plan can tell apart, given those that are in use.
class Symmetry {
 public:
  Symmetry(const Cluster& cluster, const std::vector<int>& classes)
      : cluster_(cluster), classes_(classes), by_slot_(by_slot(cluster)), used_(classes.size(), false) {}

  int size() const { return static_cast<int>(classes_.size()); }
  bool used(int device) const { return used_[at(device)]; }
  void use(int device) { used_[at(device)] = true; }
  void release(int device) { used_[at(device)] = false; }

  /// The first unused device that may stand for `device`; itself if there is none before it.
  int first_twin(int device) const {
    for (int other = 0; other < device; ++other) {
      if (!used(other) && interchangeable(other, device)) return other;
    }
    return device;
  }

  /// The size of the largest groups in which two devices are apart; 1 within the innermost level.
  int apart(int a, int b) const {
    int group = 1;
    for (const Level& level : cluster_.levels) {
      if (slot_of(cluster_, a) / level.devices != slot_of(cluster_, b) / level.devices) group = level.devices;
    }
    return group;
  }

  /// Where the device goes when groups `from` and `to` of so many slots are exchanged.
  int exchanged(int device, int group, int from, int to) const {
    const int slot = slot_of(cluster_, device), own = slot / group;
    const int moved = own == from ? to : own == to ? from : own;
    return standing(moved * group + slot % group);
  }

 private:
  /// Swapping the two, with the groups in which they are apart, changes nothing: equal devices of one group, or
  /// equal groups of which no device is in use.
  bool interchangeable(int a, int b) const {
    const int group = apart(a, b), one = slot_of(cluster_, a), other = slot_of(cluster_, b);
    if (one % group != other % group) return false;  // the one that stands where `b` does is asked as well
    const int from = one / group * group;
    const int to = other / group * group;
    for (int i = 0; i < group; ++i) {
      const int left = standing(from + i), right = standing(to + i);
      if (left == kNone && right == kNone) continue;
      if (left == kNone || right == kNone || used(left) || used(right)) return false;
      if (classes_[at(left)] != classes_[at(right)]) return false;
    }
    return true;
  }

  static constexpr int kNone = -1;
  int standing(int slot) const { return slot < std::ssize(by_slot_) ? by_slot_[at(slot)] : kNone; }

  const Cluster& cluster_;
  const std::vector<int>& classes_;
  const std::vector<int> by_slot_;
  std::vector<bool> used_;
};

/// Every order that some plan can tell from the others, while they are few.
class OrderEnumeration {
 public:
  OrderEnumeration(const Cluster& cluster, const std::vector<int>& classes) : symmetry_(cluster, classes) {}

  /// Empty when there are more than kMostOrders.
  std::vector<Order> run() {
    extend();
    if (orders_.size() > kMostOrders) orders_.clear();
    return std::move(orders_);
  }

 private:
  void extend() {
    if (orders_.size() > kMostOrders) return;
    if (std::ssize(order_) == symmetry_.size()) {
      orders_.push_back(order_);
      return;
    }
    for (int device = 0; device < symmetry_.size(); ++device) {
      if (symmetry_.used(device) || symmetry_.first_twin(device) != device) continue;
      symmetry_.use(device);
      order_.push_back(device);
      extend();
      order_.pop_back();
      symmetry_.release(device);
    }
  }

  Symmetry symmetry_;
  Order order_;
  std::vector<Order> orders_;
};

/// Class by class in the order that `rank` gives, within a class node by node or scattered.
Order arranged(const Cluster& cluster, const std::vector<int>& classes, const std::vector<int>& rank,
               Placement placement) {
  const int node = node_size(cluster);
  Order order(classes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int device) {
    const int turn = placement == Placement::scatter ? slot_of(cluster, device) % node : 0;
    return std::tuple(rank[at(classes[at(device)])], turn);
  });
  return order;
}

/// The named order for every order of the classes.
void add_arranged(const Cluster& cluster, const std::vector<int>& classes, Placement placement,
                  std::vector<Order>& orders) {
  const int count = *std::ranges::max_element(classes) + 1;
  std::vector<int> rank(at(count));
  std::iota(rank.begin(), rank.end(), 0);
  do {
    Order order = arranged(cluster, classes, rank, placement);
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(std::move(order));
  } while (count <= kMostClasses && std::ranges::next_permutation(rank).found);
}

/// The edges of a graph, forwards or backwards.
struct Edges {
  std::vector<std::vector<int>> before, after;
};

Edges edges_of(const PlanGraph& graph) {
  Edges edges;
  for (const GraphLayer& layer : graph.layers) {
    edges.before.push_back(layer.producers);
    edges.after.push_back(layer.consumers);
  }
  return edges;
}

/// Which position of the ready list (in the order in which layers became ready) comes next.
using Choice = std::function<std::size_t(const std::vector<int>& ready)>;

/// Kahn's algorithm; `done(layer)` is called for every layer placed.
std::vector<int> place(const Edges& edges, const Choice& choose, const std::function<void(int)>& done = {}) {
  std::vector<std::size_t> open;
  std::vector<int> ready, order;
  for (std::size_t i = 0; i < edges.before.size(); ++i) {
    open.push_back(edges.before[i].size());
    if (open.back() == 0) ready.push_back(static_cast<int>(i));
  }
  while (!ready.empty()) {
    const std::size_t next = choose(ready);
    const int layer = ready[next];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(next));
    order.push_back(layer);
    if (done) done(layer);
    for (const int reader : edges.after[at(layer)]) {
      if (--open[at(reader)] == 0) ready.push_back(reader);
    }
  }
  return order;
}

std::size_t last_ready(const std::vector<int>& ready) { return ready.size() - 1; }
std::size_t first_ready(const std::vector<int>&) { return 0; }

/// The ready layer of least `price`; ties: the one that stands first in the file.
std::size_t cheapest(const std::vector<int>& ready, const std::function<std::int64_t(int)>& price) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < ready.size(); ++i) {
    const std::int64_t difference = price(ready[i]) - price(ready[best]);
    if (difference < 0 || (difference == 0 && ready[i] < ready[best])) best = i;
  }
  return best;
}

std::vector<int> least_live(const Edges& edges, std::span<const std::int64_t> bytes) {
  std::vector<std::size_t> open;
  for (const auto& readers : edges.after) open.push_back(readers.size());
  const auto growth = [&](int layer) {
    std::int64_t change = edges.after[at(layer)].empty() ? 0 : bytes[at(layer)];
    for (const int source : edges.before[at(layer)]) {
      if (open[at(source)] == 1) change -= bytes[at(source)];
    }
    return change;
  };
  return place(
      edges, [&](const std::vector<int>& ready) { return cheapest(ready, growth); },
      [&](int layer) {
        for (const int source : edges.before[at(layer)]) --open[at(source)];
      });
}

std::vector<int> reversed(std::vector<int> order) {
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

void arrange(const Cluster& cluster, Placement placement, std::vector<int>& positions) {
  if (placement != Placement::scatter) return;
  const int node = node_size(cluster);
  std::ranges::stable_sort(positions, {}, [&](int device) { return slot_of(cluster, device) % node; });
}

bool order_matters(const Cluster& cluster, std::span<const std::int64_t> bytes) {
  return cluster.levels.size() > 1 || std::ranges::max(classes_of(cluster, bytes)) > 0;
}

std::vector<Order> device_orders(const Cluster& cluster, std::span<const std::int64_t> bytes,
                                 Placement placement) {
  const std::vector<int> classes = classes_of(cluster, bytes);
  if (placement == Placement::automatic && std::ssize(classes) <= kEnumerated) {
    std::vector<Order> all = OrderEnumeration(cluster, classes).run();
    if (!all.empty()) return all;
  }
  std::vector<Order> orders;
  if (placement != Placement::scatter) add_arranged(cluster, classes, Placement::packed, orders);
  if (placement == Placement::automatic || placement == Placement::scatter)
    add_arranged(cluster, classes, Placement::scatter, orders);
  return orders;
}

std::vector<int> first_twins(const Cluster& cluster, std::span<const std::int64_t> bytes,
                             std::vector<int> positions) {
  const std::vector<int> classes = classes_of(cluster, bytes);
  Symmetry symmetry(cluster, classes);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    for (int twin = symmetry.first_twin(positions[i]); twin != positions[i];
         twin = symmetry.first_twin(positions[i])) {
      const int group = symmetry.apart(twin, positions[i]);
      const int from = slot_of(cluster, positions[i]) / group;
      const int to = slot_of(cluster, twin) / group;
      for (std::size_t later = i; later < positions.size(); ++later)
        positions[later] = symmetry.exchanged(positions[later], group, from, to);
    }
    symmetry.use(positions[i]);
  }
  return positions;
}

std::vector<int> place_fresh(const Cluster& cluster, std::span<const int> replicas) {
  const int node = node_size(cluster);
  const int size = static_cast<int>(cluster.devices.size());
  std::map<int, std::vector<int>> nodes;  // positions, by group
  for (int d = 0; d < size; ++d) nodes[slot_of(cluster, d) / node].push_back(d);
  std::vector<bool> used(at(size), false);
  const auto is_used = [&](int d) { return used[at(d)]; };
  std::vector<int> positions;
  for (const int count : replicas) {
    const auto fresh = std::ranges::find_if(nodes, [&](const auto& one) {
      return std::ssize(one.second) >= count && std::ranges::none_of(one.second, is_used);
    });
    int missing = count;
    for (int d = fresh != nodes.end() ? fresh->second.front() : 0; missing > 0; ++d) {
      if (is_used(d)) continue;
      used[at(d)] = true;
      positions.push_back(d);
      --missing;
    }
  }
  return positions;
}

std::vector<LinearOrder> linear_orders(const PlanGraph& graph, std::span<const std::int64_t> output_bytes) {
  const Edges forwards = edges_of(graph);
  const Edges backwards{forwards.after, forwards.before};
  const auto largest = [&](const std::vector<int>& ready) {
    return cheapest(ready, [&](int layer) { return -output_bytes[at(layer)]; });
  };
  std::vector<LinearOrder> all{{"dfs", place(forwards, last_ready)},
                               {"bfs", place(forwards, first_ready)},
                               {"minlive", least_live(forwards, output_bytes)},
                               {"rdfs", reversed(place(backwards, last_ready))},
                               {"rbfs", reversed(place(backwards, first_ready))},
                               {"rbig", reversed(place(backwards, largest))}};
  std::vector<LinearOrder> distinct;
  for (LinearOrder& order : all) {
    const bool known = std::any_of(distinct.begin(), distinct.end(),
                                   [&](const LinearOrder& other) { return other.layers == order.layers; });
    if (!known) distinct.push_back(std::move(order));
  }
  return distinct;
}

std::vector<std::vector<int>> drawn_orders(const PlanGraph& graph, std::size_t most) {
  const Edges edges = edges_of(graph);
  std::mt19937 random;  // NOLINT(cert-msc51-cpp): plans are reproducible
  const std::size_t tries = 8 * most;
  std::set<std::vector<int>> orders;
  for (std::size_t i = 0; i < tries && orders.size() < most; ++i)
    orders.insert(place(edges, [&](const std::vector<int>& ready) { return random() % ready.size(); }));
  return {orders.begin(), orders.end()};
}

LinearOrder file_order(const PlanGraph& graph) {
  std::vector<int> layers(graph.layers.size());
  std::iota(layers.begin(), layers.end(), 0);
  return {"file", std::move(layers)};
}

}  // namespace pp::plan
