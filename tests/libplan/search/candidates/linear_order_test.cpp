#include "libplan/request/device_orders.h"

#include <algorithm>
#include <set>

#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/linear_order");

namespace pp::plan {
namespace {

PlanGraph graph_of(int layers, const std::vector<std::pair<int, int>>& edges) {
  PlanGraph graph;
  graph.layers.resize(at(layers));
  for (const auto& [producer, consumer] : edges) {
    graph.layers[at(producer)].consumers.push_back(consumer);
    graph.layers[at(consumer)].producers.push_back(producer);
  }
  return graph;
}

std::vector<int> named(const std::vector<LinearOrder>& orders, std::string_view name) {
  const auto found =
      std::find_if(orders.begin(), orders.end(), [&](const auto& order) { return order.name == name; });
  return found == orders.end() ? std::vector<int>{} : found->layers;
}

bool topological(const PlanGraph& graph, const std::vector<int>& order) {
  std::vector<std::ptrdiff_t> place(order.size(), -1);
  for (std::size_t p = 0; p < order.size(); ++p) place[at(order[p])] = static_cast<std::ptrdiff_t>(p);
  for (std::size_t l = 0; l < order.size(); ++l) {
    if (place[l] < 0) return false;
    for (const int producer : graph.layers[l].producers) {
      if (place[at(producer)] >= place[l]) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a chain has one order") {
  const PlanGraph chain = graph_of(4, {{0, 1}, {1, 2}, {2, 3}});
  const std::vector<LinearOrder> orders = linear_orders(chain, std::vector<std::int64_t>{1, 1, 1, 1});
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].name == "dfs");
  CHECK(orders[0].layers == std::vector{0, 1, 2, 3});
}

TEST_CASE("two branches: last ready first keeps a branch together, first ready first alternates") {
  // 0 -> 1 -> 3 and 0 -> 2 -> 4, both into 5.
  const PlanGraph graph = graph_of(6, {{0, 1}, {0, 2}, {1, 3}, {2, 4}, {3, 5}, {4, 5}});
  const std::vector<LinearOrder> orders = linear_orders(graph, std::vector<std::int64_t>{4, 1, 9, 1, 1, 1});
  CHECK(named(orders, "dfs") == std::vector{0, 2, 4, 1, 3, 5});
  CHECK(named(orders, "bfs") == std::vector{0, 1, 2, 3, 4, 5});
  // Live bytes after 0: layer 1 adds 1, layer 2 adds 9 and 0 stays open; then 3 adds nothing, and 2 frees 4
  // for 9.
  CHECK(named(orders, "minlive") == std::vector{0, 1, 3, 2, 4, 5});
}

TEST_CASE("a source that is needed late is placed right before its use by the reversed orders") {
  // 0 -> 1 -> 2 -> 4, 3 -> 4.
  const PlanGraph graph = graph_of(5, {{0, 1}, {1, 2}, {2, 4}, {3, 4}});
  const std::vector<LinearOrder> orders = linear_orders(graph, std::vector<std::int64_t>{1, 1, 1, 1, 1});
  CHECK(named(orders, "rbfs") == std::vector{0, 1, 3, 2, 4});
  CHECK(named(orders, "rdfs") == std::vector<int>{});  // 0,1,2,3,4: the same as minlive's
  CHECK(named(orders, "minlive") == std::vector{0, 1, 2, 3, 4});
}

TEST_CASE("all orders of random graphs are topological and distinct") {
  test::Random random(7);
  for (int round = 0; round < 200; ++round) {
    const int layers = random.integer(1, 15);
    std::vector<std::pair<int, int>> edges;
    for (int consumer = 1; consumer < layers; ++consumer) {
      for (int producer = 0; producer < consumer; ++producer) {
        if (random.integer(0, 3) == 0) edges.emplace_back(producer, consumer);
      }
    }
    const PlanGraph graph = graph_of(layers, edges);
    std::vector<std::int64_t> bytes;
    for (int l = 0; l < layers; ++l) bytes.push_back(random.integer(0, 9));
    const std::vector<LinearOrder> orders = linear_orders(graph, bytes);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      REQUIRE(topological(graph, orders[i].layers));
      for (std::size_t j = 0; j < i; ++j) REQUIRE(orders[i].layers != orders[j].layers);
    }
  }
}

TEST_CASE("drawn orders are topological, distinct, always the same, and all where there are few") {
  // 0 before 3: half of the 4! orders.
  const PlanGraph few = graph_of(4, {{0, 3}});
  const auto all = drawn_orders(few, 64);
  CHECK(all.size() == 12);
  for (const std::vector<int>& order : all) CHECK(topological(few, order));
  const PlanGraph many = graph_of(12, {{0, 11}});
  const auto some = drawn_orders(many, 64);
  CHECK(some.size() == 64);
  CHECK(std::set<std::vector<int>>(some.begin(), some.end()).size() == 64);
  CHECK(some == drawn_orders(many, 64));
}

}  // namespace pp::plan

TEST_SUITE_END();
