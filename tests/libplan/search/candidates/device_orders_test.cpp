#include "libplan/request/device_orders.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "libplan/request/machine.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/device_orders");

namespace pp::plan {
namespace {

using test::Random;
using Order = std::vector<int>;

/// Groups of `counts` devices, innermost first.
Cluster nested(const std::vector<int>& counts) {
  Cluster cluster = test::make_cluster(std::accumulate(counts.begin(), counts.end(), 1, std::multiplies<>()));
  Level level = cluster.levels.front();
  cluster.levels.clear();
  level.devices = 1;
  for (const int count : counts) {
    level.devices *= count;
    cluster.levels.push_back(level);
  }
  return cluster;
}

std::vector<Order> orders_of(const Cluster& cluster, Placement placement = Placement::automatic) {
  return device_orders(cluster, std::vector<std::int64_t>(cluster.devices.size(), 100), placement);
}

/// All that a plan can tell of an order: speed and bytes of each device, the innermost level that each pair
/// shares.
std::vector<double> appearance(const Cluster& cluster, const std::vector<std::int64_t>& bytes,
                               const Order& order) {
  std::vector<double> seen;
  for (const int one : order) {
    seen.push_back(cluster.devices[at(one)].speed);
    seen.push_back(static_cast<double>(bytes[at(one)]));
    for (const int other : order) {
      const auto joins = [&](const Level& level) {
        return slot_of(cluster, one) / level.devices == slot_of(cluster, other) / level.devices;
      };
      seen.push_back(static_cast<double>(std::ranges::find_if(cluster.levels, joins) - cluster.levels.begin()));
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("small clusters: every order up to equal devices and equal nodes") {
  // Two nodes of two: the second device is on the same node or not, and then the third is.
  CHECK(orders_of(nested({2, 2})) == std::vector<Order>{{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 2, 3, 1}});
  // Three nodes of two: 6!/(2!^3 3!) = 15 ways to pair them up.
  CHECK(orders_of(nested({2, 3})).size() == 15);
  // Two nodes of three: 6!/(3!^2 2!) = 10.
  CHECK(orders_of(nested({3, 2})).size() == 10);
  CHECK(orders_of(nested({4})) == std::vector<Order>{{0, 1, 2, 3}});
}

TEST_CASE("unequal devices: speeds 2,1,1 have three orders, unequal memories as well") {
  Cluster cluster = test::make_cluster(3);
  cluster.devices[1].speed = 2;
  CHECK(orders_of(cluster) == std::vector<Order>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}});
  cluster.devices[1].speed = 1;
  CHECK(device_orders(cluster, std::vector<std::int64_t>{5, 5, 9}, Placement::automatic).size() == 3);
  CHECK_FALSE(order_matters(cluster, std::vector<std::int64_t>{5, 5, 5}));
  CHECK(order_matters(cluster, std::vector<std::int64_t>{5, 5, 9}));
  CHECK(order_matters(nested({2, 2}), std::vector<std::int64_t>{5, 5, 5, 5}));
}

TEST_CASE("up to six unequal devices: all orders that look different are listed, if they are at most 24") {
  Random random(36);
  const std::vector<std::vector<int>> machines{{4}, {5}, {2, 2}, {3, 2}, {2, 3}, {1, 2, 2}};
  int complete = 0;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    Cluster cluster = nested(machines[at(round) % machines.size()]);
    std::vector<int> kept;  // in every fifth machine nodes are of unequal sizes
    for (int d = 0; d < std::ssize(cluster.devices); ++d)
      if (round % 5 != 0 || random.integer(1, 4) > 1 || d == 0) kept.push_back(d);
    const std::vector<Level> levels = cluster.levels;
    cluster = some_devices(cluster, kept);
    cluster.levels = levels;  // those that join a single group, too
    std::vector<std::int64_t> bytes;
    for (Device& device : cluster.devices) {
      if (round % 3 != 0) device.speed = random.integer(1, 5) == 1 ? 2 : 1;
      bytes.push_back(round % 4 == 1 ? random.integer(5, 6) : 5);
    }
    std::set<std::vector<double>> all;
    Order order(cluster.devices.size());
    std::iota(order.begin(), order.end(), 0);
    do all.insert(appearance(cluster, bytes, order));
    while (std::ranges::next_permutation(order).found);

    std::set<std::vector<double>> listed;
    for (const Order& one : device_orders(cluster, bytes, Placement::automatic))
      listed.insert(appearance(cluster, bytes, one));
    CHECK(std::ranges::includes(all, listed));
    if (all.size() > 24) continue;  // only those with a name
    CHECK(listed == all);
    ++complete;
  }
  CHECK(complete > 700);
}

TEST_CASE("larger clusters: node by node and scattered, the classes of devices in every order") {
  Cluster cluster = nested({4, 3});
  CHECK(orders_of(cluster, Placement::packed) == std::vector<Order>{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
  CHECK(orders_of(cluster, Placement::scatter) == std::vector<Order>{{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}});
  CHECK(orders_of(cluster).size() == 2);
  for (int d = 4; d < 8; ++d) cluster.devices[at(d)].speed = 2;
  CHECK(orders_of(cluster, Placement::packed) ==
        std::vector<Order>{{4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11}, {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7}});
  CHECK(orders_of(cluster).size() == 4);
}

TEST_CASE("fresh: a stage starts on an empty node that holds it, otherwise it fills up") {
  const Cluster cluster = nested({4, 2});
  CHECK(place_fresh(cluster, std::vector<int>{2, 4, 2}) == Order{0, 1, 4, 5, 6, 7, 2, 3});
  CHECK(place_fresh(cluster, std::vector<int>{1, 1, 1}) == Order{0, 4, 1});
  CHECK(place_fresh(cluster, std::vector<int>{5, 3}) == Order{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("what no plan can tell apart gets the lowest numbers") {
  const std::vector<std::int64_t> bytes(8, 1);
  const auto lowest = [&](const Order& order) { return first_twins(nested({4, 2}), bytes, order); };
  CHECK(lowest({7, 6, 5, 4, 3, 2}) == Order{0, 1, 2, 3, 4, 5});
  CHECK(lowest({4, 0, 5, 1}) == Order{0, 4, 1, 5});
  CHECK(lowest({3, 6, 2}) == Order{0, 4, 1});
  Cluster fast = nested({2, 2});
  fast.devices[3].speed = 2;
  CHECK(first_twins(fast, std::vector<std::int64_t>(4, 1), {3, 1, 2}) == Order{3, 0, 2});
}

}  // namespace pp::plan

TEST_SUITE_END();
