#include "libplan/cost/links.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/links");

namespace pp::plan::links_test {
namespace {

Link link(double bandwidth, double latency) { return {BytesPerSecond(bandwidth), Seconds(latency)}; }
doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-12); }

/// Two nodes of two devices: 10 GB/s and 5 us inside, 1 GB/s and 20 us between.
Cluster two_nodes() {
  Cluster cluster = flat_cluster(4, DeviceKind::cpu, BytesPerSecond(1e10), Seconds(5e-6), Bytes(0));
  Level inner = cluster.levels.front();
  inner.devices = 2;
  Level outer = inner;
  outer.devices = 4;
  outer.bandwidth = BytesPerSecond(1e9);
  outer.latency = Seconds(2e-5);
  cluster.levels = {inner, outer};
  return cluster;
}

}  // namespace

TEST_CASE("all-reduce of 100 MB and of 1 kB over four replicas at 10 us and 1 GB/s") {
  // ring: 6*10us + 6/4*100ms; tree: 4*10us + 200ms; 1 kB: 60us + 1.5us and 40us + 2us.
  CHECK(ring_all_reduce(4, link(1e9, 1e-5)).seconds(1e8) == exactly(0.15006));
  CHECK(tree_all_reduce(4, link(1e9, 1e-5)).seconds(1e8) == exactly(0.20004));
  CHECK(ring_all_reduce(4, link(1e9, 1e-5)).seconds(1e3) == exactly(61.5e-6));
  CHECK(tree_all_reduce(4, link(1e9, 1e-5)).seconds(1e3) == exactly(42e-6));
  const auto flat = [](int replicas) {
    return least_all_reduce_forms(flat_cluster(8, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-5), {}),
                                  replicas);
  };
  CHECK(cheapest(flat(4), Reduction{1e3}) == exactly(42e-6));
  CHECK(cheapest(flat(1), Reduction{1e8}) == 0);
}

TEST_CASE("two levels: one network card per node, or one per replica") {
  // 6*5us + 1.5*10ms + 2*20us + 1*100ms = 115.07 ms; with 4 cards the last term is 25 ms.
  CHECK(two_level_all_reduce(2, 4, 1, link(1e10, 5e-6), link(1e9, 2e-5)).seconds(1e8) == exactly(0.11507));
  CHECK(two_level_all_reduce(2, 4, 4, link(1e10, 5e-6), link(1e9, 2e-5)).seconds(1e8) == exactly(0.04007));
}

TEST_CASE("a small node leaves its group to no other") {
  // One device on the first node, two on the second.
  Cluster cluster = two_nodes();
  cluster.devices.pop_back();
  cluster = with_slots(cluster, {0, 2, 3});
  CHECK(link_between(cluster, 0, 1) == link_of(cluster.levels[1]));
  CHECK(link_between(cluster, 1, 2) == link_of(cluster.levels[0]));
  CHECK(network_cards(cluster).of == std::vector<int>{0, 1, 1});
  // Two of one node add up over its link; the first node has no second device for a ring within nodes.
  CHECK(all_reduce_time(cluster, std::vector<int>{1, 2}, Bytes(100'000'000)).count() == exactly(10e-6 + 0.01));
  CHECK(all_reduce_forms(cluster, std::vector<int>{0, 1, 2}).size() == 2);
}

TEST_CASE("replicas of two nodes wait for the server on the first one's device") {
  // 100 MB: 10 ms within its node, 100 ms each from the other node; the longest way 20 us.
  const std::vector<int> devices{0, 1, 2, 3};
  const ServerWays ways = server_ways(two_nodes(), devices);
  CHECK(ways.together(1e8) == exactly(2 * (20e-6 + 0.21)));
  CHECK(ways.in_turns(1e8, 1) == exactly(2 * (20e-6 + 0.1)));
  CHECK(ways.in_turns(1e8, 0) == exactly(0.21));  // the port has 210 ms to do for each of their mini-batches
  CHECK(server_ways(3, link(1e9, 2e-5)).together(1e8) == exactly(2 * (20e-6 + 0.2)));
  CHECK(server_ways(1, link(1e9, 2e-5)).together(1e8) == 0);
}

TEST_CASE("a message pays its latency once, and bandwidth for every byte") {
  CHECK(transfer_time(3e6, 2, link(1e9, 1e-3)) == exactly(0.005));
  CHECK(occupancy(3e6, link(1e9, 1e-3)) == exactly(0.003));
  CHECK(occupancy(3e6, Link{}) == 0);
}

TEST_CASE("the innermost level that holds both devices is their link") {
  const Cluster cluster = two_nodes();
  CHECK(link_between(cluster, 0, 1).bandwidth.value == 1e10);
  CHECK(link_between(cluster, 1, 2).bandwidth.value == 1e9);
  CHECK(link_between(cluster, 3, 3).bandwidth.value == 0);
  CHECK(slowest_link(cluster).bandwidth.value == 1e9);
  CHECK(slowest_link(cluster).latency.count() == 2e-5);
  CHECK(fastest_link(cluster).bandwidth.value == 1e10);
  CHECK(fastest_link(cluster).latency.count() == 5e-6);
}

TEST_CASE("a message keeps both devices for its cost and the share that does not overlap") {
  const Link dear{BytesPerSecond(1e9), Seconds(1e-3), Seconds(2e-5), 0.75, Duplex::full};
  CHECK(handling_time(4e6, 3, dear) == exactly(3 * 2e-5 + 0.25 * 4e-3));
  CHECK(handling_time(4e6, 3, link(1e9, 1e-3)) == 0);
  CHECK_FALSE(asks_devices(link(1e9, 1e-3)));
  CHECK(asks_devices({.overlap = 0.5}));
  CHECK(asks_devices({.message_cost = Seconds(1e-6)}));
}

TEST_CASE("links carry what their level asks of the devices, the slowest the most and the fastest the least") {
  Cluster cluster = two_nodes();
  Level &inner = cluster.levels[0], &outer = cluster.levels[1];
  inner.message_cost = Seconds(3e-6);
  outer.message_cost = Seconds(1e-6);
  outer.overlap = 0.25;
  inner.duplex = Duplex::half;
  const Link inside{BytesPerSecond(1e10), Seconds(5e-6), Seconds(3e-6), 1, Duplex::half};
  const Link between{BytesPerSecond(1e9), Seconds(2e-5), Seconds(1e-6), 0.25, Duplex::full};
  CHECK((link_between(cluster, 0, 1) == inside));
  CHECK((link_between(cluster, 1, 2) == between));
  CHECK((link_between(cluster, 1, 1) == Link{}));
  CHECK((slowest_link(cluster) == Link{BytesPerSecond(1e9), Seconds(2e-5), Seconds(3e-6), 0.25, Duplex::half}));
  CHECK((fastest_link(cluster) == Link{BytesPerSecond(1e10), Seconds(5e-6), Seconds(1e-6), 1, Duplex::full}));
}

TEST_CASE("an all-reduce takes the cheapest form its devices allow") {
  const Cluster cluster = two_nodes();
  const std::vector<int> inside{0, 1}, across{1, 2}, all{0, 1, 2, 3};
  // ring(2) at 10 GB/s: 10us + 10ms.
  CHECK(all_reduce_time(cluster, inside, Bytes(100'000'000)).count() == exactly(0.01001));
  // one replica per node: ring(2) at 1 GB/s.
  CHECK(all_reduce_time(cluster, across, Bytes(100'000'000)).count() == exactly(0.10004));
  // two levels: 10us + 10ms + 40us + 100ms = 110.05 ms, below the ring's 6*20us + 150ms.
  CHECK(all_reduce_time(cluster, all, Bytes(100'000'000)).count() == exactly(0.11005));
  CHECK(all_reduce_time(cluster, std::vector<int>{2}, Bytes(100'000'000)).count() == 0);
}

TEST_CASE("an all-reduce pays the larger latency of equally fast links, in whatever order the devices stand") {
  Cluster cluster = two_nodes();
  cluster.levels[1].bandwidth = cluster.levels[0].bandwidth;
  // A ring over three crosses nodes: 4*20us + 4/3*10ms.
  for (const std::vector<int>& devices : {std::vector<int>{0, 1, 2}, {0, 2, 1}, {2, 0, 1}})
    CHECK(all_reduce_time(cluster, devices, Bytes(100'000'000)).count() == exactly(80e-6 + 0.04 / 3));
}

TEST_CASE("a measured all-reduce is what all-reduces cost, between fewer devices as its ring") {
  Cluster cluster = flat_cluster(4, DeviceKind::cpu, BytesPerSecond(1e10), Seconds(0), Bytes(0));
  cluster.levels.front().all_reduce = MeasuredAllReduce{BytesPerSecond(2e9), Seconds(6e-3), 0, {}};
  // All four: 6 ms + 100 MB at 2 GB/s. That is a ring of 6 steps of 1 ms with 6/4 of the bytes at 3 GB/s.
  const std::vector<int> all{0, 1, 2, 3}, two{1, 2};
  CHECK(all_reduce_time(cluster, all, Bytes(100'000'000)).count() == exactly(0.056));
  CHECK(all_reduce_time(cluster, two, Bytes(300'000'000)).count() == exactly(0.102));
  CHECK(fastest_links(cluster).sums.bandwidth.value == exactly(3e9));
  CHECK(fastest_links(cluster).messages.bandwidth.value == 1e10);
  const auto least = least_all_reduce_forms(cluster, 4);
  CHECK(cheapest(least, Reduction{1e8}) == exactly(0.056));
}

TEST_CASE("a measured all-reduce between nodes: inside a node messages tell") {
  Cluster cluster = two_nodes();
  cluster.levels[1].all_reduce = MeasuredAllReduce{BytesPerSecond(5e8), Seconds(12e-5), 0, {}};
  // Between nodes the ring of four has 6 steps of 20 us, 6/4 of the bytes at 0.75 GB/s.
  CHECK(all_reduce_time(cluster, std::vector<int>{0, 1}, Bytes(100'000'000)).count() == exactly(0.01001));
  CHECK(all_reduce_time(cluster, std::vector<int>{1, 2}, Bytes(75'000'000)).count() == exactly(0.10004));
  CHECK(link_between(cluster, 1, 2).bandwidth.value == 1e9);
}

TEST_CASE("bytes past the caches come at their own bandwidth") {
  Link sums = link(1e9, 1e-3);
  sums.cached = Bytes(2'000'000);
  sums.beyond = BytesPerSecond(2.5e8);
  CHECK(occupancy(2e6, sums) == exactly(2e-3));
  CHECK(occupancy(3e6, sums) == exactly(2e-3 + 4e-3));
  // A ring of four passes on 6/4 of that; a tree twice that.
  CHECK(ring_all_reduce(4, sums).seconds(3e6) == exactly(6e-3 + 1.5 * 6e-3));
  CHECK(tree_all_reduce(4, sums).seconds(3e6) == exactly(4e-3 + 2 * 6e-3));
  // Two nodes of four with two cards each: every card carries half, so 4 MB fill what the nodes' link caches.
  // Inside, 6 x 1 ms + 1.5 x 5 ms of 5 MB at 1 GB/s; between, 2 x 1 ms + 2.5 MB, 0.5 MB of them slowly.
  CHECK(two_level_all_reduce(2, 4, 2, link(1e9, 1e-3), sums).seconds(5e6) ==
        exactly(6e-3 + 7.5e-3 + 2e-3 + 2e-3 + 2e-3));
  // The other way round: inside 2 MB quickly and 3 MB slowly.
  CHECK(two_level_all_reduce(2, 4, 2, sums, link(1e9, 1e-3)).seconds(5e6) ==
        exactly(6e-3 + 1.5 * 14e-3 + 2e-3 + 2.5e-3));
}

TEST_CASE("a measured all-reduce that leaves the caches: of all, of fewer, and of the levels together") {
  Cluster cluster = two_nodes();
  cluster.levels[1].all_reduce =
      MeasuredAllReduce{BytesPerSecond(1e9), {}, 0, {}, 0, Bytes(1'000'000), BytesPerSecond(1e8)};
  // 1 MB at 1 GB/s and 1 MB at 0.1 GB/s; the ring of four moves 6/4 of that at 3/2 of the rates, that of two
  // as many bytes as the vector has.
  const std::vector<int> all{0, 1, 2, 3}, across{1, 2};
  const Links slowest = slowest_links(cluster), fastest = fastest_links(cluster);
  CHECK(ring_all_reduce(4, slowest.sums).seconds(2e6) == exactly(11e-3 + 6 * 5e-6));
  CHECK(all_reduce_time(cluster, across, Bytes(2'000'000)).count() == exactly(11e-3 / 1.5));
  CHECK(slowest.sums.beyond.value == exactly(1.5e8));
  CHECK(fastest.sums.beyond.value == 0);  // inside a node all bytes are alike
  CHECK(slowest.messages.beyond.value == 0);
  // A bound lies below what any devices pay.
  for (const double bytes : {1e5, 1e6, 2e6, 1e8}) {
    CHECK(cheapest(least_all_reduce_forms(cluster, 2), Reduction{bytes}) <=
          cheapest(all_reduce_forms(cluster, across), Reduction{bytes}));
    CHECK(cheapest(least_all_reduce_forms(cluster, 4), Reduction{bytes}) <=
          cheapest(all_reduce_forms(cluster, all), Reduction{bytes}));
  }
}

TEST_CASE("a way to reduce undercuts another one only where it does for all bytes") {
  const AllReduceForm plain{1, 1}, late{1, 1, {AllReduceForm::Excess{5, 1}}},
      early{1, 1, {AllReduceForm::Excess{4, 1}}};
  CHECK(plain.undercuts(plain));
  CHECK(plain.undercuts(late));
  CHECK(late.undercuts(early));
  CHECK_FALSE(early.undercuts(late));
  CHECK_FALSE(late.undercuts(plain));
  CHECK_FALSE(AllReduceForm{2, 1}.undercuts(late));
}

}  // namespace pp::plan::links_test

TEST_SUITE_END();
