// The levels of a cluster from the links of its pairs, between devices and between ranks.
#include "librun/links/link_levels.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/links/rank_links.h"
#include "tests/librun/links/link_samples.h"
#include "tests/support/doctest.h"
#include "tests/support/thread_peers.h"

namespace link_levels_test {

using namespace pp;
using namespace pp::run;
using pp::run::test::sample;

namespace {

using Costs = std::vector<std::vector<double>>;

/// Device i's place is `place[i]`; two devices meet in the innermost group of `sizes` that holds both places,
/// and their link costs 10 to the power of that level, times up to `noise`.
Costs nested(const std::vector<int>& place, const std::vector<int>& sizes, double noise = 1) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> factor(1, noise);
  Costs cost(place.size(), std::vector<double>(place.size(), 0));
  for (std::size_t i = 0; i < place.size(); ++i) {
    for (std::size_t j = i + 1; j < place.size(); ++j) {
      double value = noise > 1 ? factor(random) : 1;
      for (const int size : sizes) {
        if (place[i] / size == place[j] / size) break;
        value *= 10;
      }
      cost[i][j] = cost[j][i] = value;
    }
  }
  return cost;
}

std::vector<int> count_up(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Pairs of n devices whose messages of 1 and 2 kB take `us[i][j]` and twice as long.
std::vector<MeasuredPair> pairs_of(const Costs& us) {
  std::vector<MeasuredPair> pairs;
  for (int i = 0; i < static_cast<int>(us.size()); ++i) {
    for (int j = i + 1; j < static_cast<int>(us.size()); ++j) {
      const double time = us[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      pairs.push_back({i, j, {sample(1000, time), sample(2000, 2 * time)}});
    }
  }
  return pairs;
}

std::vector<Device> devices_on(const std::vector<std::string>& nodes) {
  std::vector<Device> devices(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    devices[i].id = DeviceId{static_cast<int>(i)};
    devices[i].index = static_cast<int>(i);
    devices[i].node = nodes[i];
  }
  return devices;
}

/// What each of `size` ranks gets.
std::vector<std::optional<Cluster>> measure(int size, const LinkSweep& sweep, std::vector<double>& progress) {
  pp::test::Wires wires(size);
  std::vector<std::optional<Cluster>> results(static_cast<std::size_t>(size));
  pp::test::on_ranks(wires, [&](pp::test::ThreadPeers& peers) {
    results[static_cast<std::size_t>(peers.rank())] = measure_rank_links(
        peers, *make_host_medium(peers), sweep, [&](double done) { progress.push_back(done); });
  });
  return results;
}

}  // namespace

TEST_SUITE("librun/links/link_levels") {
  TEST_CASE("equal links are one level") {
    CHECK(group_devices(nested(count_up(4), {4})) == DeviceGroups{{0, 1, 2, 3}, {4}});
    CHECK(group_devices(nested(count_up(2), {2})) == DeviceGroups{{0, 1}, {2}});
  }

  TEST_CASE("2 x 2 and 2 x 2 x 2 devices are found") {
    CHECK(group_devices(nested(count_up(4), {2, 4})) == DeviceGroups{{0, 1, 2, 3}, {2, 4}});
    CHECK(group_devices(nested(count_up(8), {2, 4, 8})) == DeviceGroups{count_up(8), {2, 4, 8}});
  }

  TEST_CASE("devices of a group are brought together, in the order of their first members") {
    // 0 and 2 are neighbours, 1 and 3 as well.
    CHECK(group_devices(nested({0, 2, 1, 3}, {2, 4})) == DeviceGroups{{0, 2, 1, 3}, {2, 4}});
    // Places 0, 4, 1, 5, 2, 6, 3, 7: the even devices are one group of four, of the pairs (0, 2) and (4, 6).
    CHECK(group_devices(nested({0, 4, 1, 5, 2, 6, 3, 7}, {2, 4, 8})) ==
          DeviceGroups{{0, 2, 4, 6, 1, 3, 5, 7}, {2, 4, 8}});
  }

  TEST_CASE("noise below the factor changes nothing, whatever the devices' order") {
    std::mt19937 random(3);
    std::vector<int> place = count_up(12);
    for (int round = 0; round < 20; ++round) {
      std::ranges::shuffle(place, random);
      const Costs cost = nested(place, {3, 6, 12}, 1.4);
      const DeviceGroups groups = group_devices(cost);
      REQUIRE(groups.sizes == std::vector<int>{3, 6, 12});
      // Neighbours in the new order share a group of three: their places do.
      for (std::size_t k = 0; k < 12; ++k) {
        const int mine = place[static_cast<std::size_t>(groups.order[k])];
        const int first = place[static_cast<std::size_t>(groups.order[k / 3 * 3])];
        CHECK(mine / 3 == first / 3);
      }
    }
  }

  TEST_CASE("groups of unequal size, and links that join groups in a chain, are no level") {
    // 0, 1, 2 together and 3 alone.
    CHECK(group_devices(nested({0, 1, 2, 3}, {3, 6})).sizes == std::vector<int>{4});
    // A ring: 0-1, 1-2, 2-3, 3-0 are cheap, the diagonals are not.
    const Costs ring{{0, 1, 9, 1}, {1, 0, 1, 9}, {9, 1, 0, 1}, {1, 9, 1, 0}};
    CHECK(group_devices(ring).sizes == std::vector<int>{4});
  }

  TEST_CASE("a pair's cost is the geometric mean of its times") {
    CHECK(pair_cost(std::vector{sample(1000, 2), sample(2000, 8)}) == doctest::Approx(4e-6));
  }

  TEST_CASE("a cluster's levels carry the links that meet in them, devices stand by group") {
    // Devices 0 and 2 on node a, 1 and 3 on node b; 1 us per kB inside, 30 us between.
    const Cluster cluster =
        build_cluster(devices_on({"a", "b", "a", "b"}),
                      pairs_of({{0, 30, 1, 30}, {30, 0, 30, 1}, {1, 30, 0, 30}, {30, 1, 30, 0}}), "node");
    CHECK(cluster.measured);
    std::vector<int> indices;
    for (const Device& device : cluster.devices) indices.push_back(device.index);
    CHECK(indices == std::vector<int>{0, 2, 1, 3});
    CHECK(cluster.devices[1].id == DeviceId{1});
    REQUIRE(cluster.levels.size() == 2);
    CHECK(cluster.levels[0].name == "node");
    CHECK(cluster.levels[0].devices == 2);
    CHECK(cluster.levels[0].bandwidth.value == doctest::Approx(1e9));
    CHECK(cluster.levels[0].samples[0].time.samples == 20);  // two pairs
    CHECK(cluster.levels[1].name == "cluster");
    CHECK(cluster.levels[1].devices == 4);
    CHECK(cluster.levels[1].bandwidth.value == doctest::Approx(1e9 / 30));
    CHECK(cluster.levels[1].samples[1].time.samples == 40);  // four pairs
    CHECK(parse_cluster(dump_json(to_json(cluster))) == cluster);
  }

  TEST_CASE("samples of several pairs: the middle median between the lowest low and the highest high") {
    const Cluster cluster = build_cluster(devices_on({"a", "a", "a"}),
                                          pairs_of({{0, 10, 11}, {10, 0, 12}, {11, 12, 0}}), "process");
    REQUIRE(cluster.levels.size() == 1);
    CHECK(cluster.levels[0].name == "process");
    const TimeStat time = cluster.levels[0].samples[0].time;
    CHECK(time.median.count() == doctest::Approx(11e-6));
    CHECK(time.low.count() == doctest::Approx(10e-6));
    CHECK(time.high.count() == doctest::Approx(12e-6));
    CHECK(time.samples == 30);
  }

  TEST_CASE("levels inside a node are groups, the largest has the node's name") {
    Costs us = nested(count_up(8), {2, 4, 8});
    const Cluster cluster =
        build_cluster(devices_on({"a", "a", "a", "a", "b", "b", "b", "b"}), pairs_of(us), "node");
    std::vector<std::string> names;
    for (const Level& level : cluster.levels) names.push_back(level.name);
    CHECK(names == std::vector<std::string>{"group of 2", "node", "cluster"});
  }

  TEST_CASE("fits that miss are named by level and by all-reduce") {
    Cluster cluster = build_cluster(devices_on({"a", "a"}), pairs_of({{0, 1}, {1, 0}}), "process");
    CHECK(link_findings(cluster).empty());
    Level& level = cluster.levels.front();
    level.fit_residual = 0.5;
    level.all_reduce = {level.bandwidth, level.latency, 0.3, level.samples};
    const std::vector<std::string> findings = link_findings(cluster);
    REQUIRE(findings.size() == 2);
    CHECK(findings[0].starts_with("level process: latency and bandwidth miss "));
    CHECK(findings[1].starts_with("all-reduce of level process: latency and bandwidth miss "));
  }

  TEST_CASE("every pair of ranks is measured, rank 0 gets the cluster") {
    const LinkSweep sweep{.smallest = Bytes(64), .largest = Bytes(256), .repetitions = 4, .warm_up = 1};
    std::vector<double> progress;
    const auto results = measure(3, sweep, progress);
    CHECK_FALSE(results[1].has_value());
    CHECK_FALSE(results[2].has_value());
    REQUIRE(results[0].has_value());
    const Cluster& cluster = *results[0];
    REQUIRE(cluster.devices.size() == 3);
    for (const Device& device : cluster.devices) {
      CHECK_FALSE(device.node.empty());
      CHECK_FALSE(device.cores.empty());
      CHECK(device.memory.value > 0);
    }
    std::int64_t samples = 0;
    for (const Level& level : cluster.levels) samples += level.samples.front().time.samples;
    CHECK(samples == 3 * 4);  // 3 pairs, 4 round trips each
    CHECK(cluster.levels.back().devices == 3);
    CHECK(cluster.levels.back().name == "node");  // all ranks are on this host
    REQUIRE(cluster.levels.back().all_reduce.has_value());
    CHECK(cluster.levels.back().all_reduce->samples.size() == 3);  // 64, 128, 256 bytes
    CHECK(progress == std::vector<double>{0.25, 0.5, 0.75, 1});
  }

  TEST_CASE("one rank alone has no link") {
    pp::test::Wires wires(1);
    pp::test::ThreadPeers alone(wires, 0);
    CHECK_THROWS_WITH_AS(measure_rank_links(alone, *make_host_medium(alone), {}),
                         "1 rank: a link needs at least 2; start with mpirun -n 2 or more", Error);
  }
}

}  // namespace link_levels_test
