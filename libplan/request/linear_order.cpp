#include "libplan/request/linear_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

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
