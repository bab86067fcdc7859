#include "libprofile/core/cluster.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

TEST_SUITE_BEGIN("libprofile/core/cluster_scale");

namespace pp::cluster_scale_test {
namespace {

/// `nodes` of eight with 300 GB/s inside, so many cards, and 50 GB/s a card.
Cluster machine(int nodes, int cards) {
  const std::array levels{LevelSpec{8, BytesPerSecond(3e11)}, LevelSpec{nodes, BytesPerSecond(5e10)}};
  Cluster cluster = nested_cluster(levels, DeviceKind::cuda, Seconds(5e-6), Bytes(80));
  cluster.levels[0].cards = cards;
  return cluster;
}

std::vector<int> sizes(const Cluster& cluster) {
  std::vector<int> sizes;
  for (const Level& level : cluster.levels) sizes.push_back(level.devices);
  return sizes;
}

template <class Work>
std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a node is repeated; of one node the level between nodes goes away") {
  const Cluster three = with_nodes(machine(2, 8), 3);
  CHECK(three == machine(3, 8));
  Cluster one = with_nodes(machine(2, 8), 1);
  REQUIRE(one.copies);
  CHECK(one.copies->cards == 8);
  one.copies.reset();  // which a document of this machine alone does not say
  CHECK(one.devices.size() == 8);
  CHECK(sizes(one) == std::vector{8});
  CHECK(one.levels[0].cards == 1);
  CHECK(cluster_from_json(to_json(one)) == one);
  CHECK(with_nodes(machine(2, 8), 30).devices[8 * 26].node == "aa");
}

TEST_CASE("a document of one node says how more would be joined") {
  Cluster one = machine(1, 8);
  CHECK(sizes(one) == std::vector{8, 8});
  CHECK(with_nodes(cluster_from_json(to_json(one)), 4) == machine(4, 8));
  CHECK(without_single_groups(one) == with_nodes(machine(2, 8), 1));
  CHECK(without_single_groups(machine(2, 8)) == machine(2, 8));
}

TEST_CASE("what was measured of the sums of other nodes is left out") {
  Cluster measured = machine(2, 1);
  measured.measured = true;
  measured.levels[1].all_reduce.emplace().bandwidth = BytesPerSecond(1e9);
  CHECK(with_nodes(measured, 2).levels[1].all_reduce.has_value());
  CHECK_FALSE(with_nodes(measured, 4).levels[1].all_reduce.has_value());
  CHECK_FALSE(with_nodes(measured, 4).measured);
}

TEST_CASE("nodes that cannot be repeated are refused by name") {
  CHECK(refusal([] { with_nodes(flat_cluster(4, DeviceKind::cuda, BytesPerSecond(1e9), {}, {}), 2); }) ==
        "--nodes: the cluster has 1 level, not one within a node and one between nodes; give such a file, or "
        "--levels");
  Cluster uneven = machine(2, 8);
  uneven.devices[11].speed = 0.5;
  CHECK(refusal([&] { with_nodes(uneven, 2); }) ==
        "--nodes: device 11 differs from device 3 of the first node; give nodes that are equal");
  CHECK(refusal([] { with_nodes(machine(2, 8), 10'000); }) ==
        "80000 devices exceed the limit of 65536; plan for a smaller cluster");
}

TEST_CASE("tensor groups are neighbours; with a card for each GPU every member has its own") {
  Cluster grouped = with_groups(machine(2, 8), 4);
  REQUIRE(grouped.devices.size() == 4);
  CHECK(sizes(grouped) == std::vector{2, 4});
  CHECK(grouped.devices[1].index == 4);  // named after the first member
  CHECK(grouped.devices[2].node == "b");
  CHECK(grouped.devices[3].memory == Bytes(80));
  CHECK(grouped.levels[0].bandwidth.value == 3e11);
  CHECK(grouped.levels[1].bandwidth.value == 5e10);
  CHECK(grouped.levels[0].cards == 2);  // a group does not wait for another's
  CHECK(with_groups(machine(2, 8), 1) == machine(2, 8));
}

TEST_CASE("members behind one card share it") {
  // One card for eight GPUs: four members have a quarter of it each, two groups wait for each other.
  const Cluster four = with_groups(machine(2, 1), 4);
  CHECK(four.levels[1].bandwidth.value == 1.25e10);
  CHECK(four.levels[0].cards == 1);
  // Two cards for eight: a pair sits behind one of them; so do two pairs.
  const Cluster pairs = with_groups(machine(2, 2), 2);
  CHECK(pairs.levels[1].bandwidth.value == 2.5e10);
  CHECK(pairs.levels[0].cards == 2);
}

TEST_CASE("a group of a whole node leaves the links between nodes") {
  const Cluster grouped = with_groups(machine(2, 8), 8);
  CHECK(sizes(grouped) == std::vector{2});
  CHECK(grouped.levels[0].bandwidth.value == 5e10);
  CHECK(cluster_from_json(to_json(grouped)) == grouped);
}

TEST_CASE("a group of two whole nodes sends by all their cards") {
  // Four nodes of eight: two groups of sixteen, whose members each have a card of 50 GB/s, or an eighth of one.
  const Cluster grouped = with_groups(machine(4, 8), 16);
  CHECK(sizes(grouped) == std::vector{2});
  CHECK(grouped.devices[1].node == "c");
  CHECK(grouped.levels[0].bandwidth.value == 5e10);
  CHECK(with_groups(machine(4, 1), 16).levels[0].bandwidth.value == 6.25e9);
  CHECK(cluster_from_json(to_json(grouped)) == grouped);
}

TEST_CASE("groups that do not divide a node are refused with both numbers") {
  CHECK(refusal([] { with_groups(machine(2, 8), 3); }) ==
        "groups of 3 do not divide the 8 devices that the innermost level joins; profile with a degree "
        "that divides them");
  CHECK(refusal([] { with_groups(machine(3, 8), 16); }) ==
        "groups of 16 do not divide the 24 devices that the cluster has; profile with a degree that "
        "divides them");
  Cluster split = flat_cluster(2, DeviceKind::cuda, BytesPerSecond(1e9), {}, {});
  split.devices[1].node = "b";
  CHECK(refusal([&] { with_groups(split, 2); }) ==
        "tensor groups: devices 0 and 1 stand on different nodes (, b); a group is of devices of one node, or "
        "of whole nodes");
}

TEST_CASE("unequal nodes: groups within nodes, and no copies") {
  Cluster small = machine(2, 8);  // eight and four
  small.devices.resize(12);
  std::ranges::rotate(small.devices, small.devices.begin() + 8);
  for (std::size_t d = 0; d < 12; ++d) small.devices[d].id = DeviceId{static_cast<int>(d)};
  small = cluster_from_json(to_json(small));
  REQUIRE(slot_of(small, 4) == 8);
  const Cluster pairs = with_groups(small, 2);
  CHECK(pairs.devices.size() == 6);
  CHECK(slot_of(pairs, 2) == 4);
  CHECK(refusal([&] { with_groups(small, 8); }).starts_with("groups of 8 do not divide the 12 devices"));
  small.devices.erase(small.devices.begin());
  small = with_slots(small, {0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15});
  small.devices.pop_back();
  CHECK(refusal([&] { with_groups(small, 2); }) ==
        "groups of 2 do not divide the devices of node b; profile with a degree that divides them");
  CHECK(refusal([&] { with_nodes(small, 2); }) == "--nodes: a node has fewer than 8 devices; give whole nodes");
}

TEST_CASE("every machine to start from is read, of one node or of sixteen") {
  int machines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(pp::test::repository("configs/clusters"))) {
    CAPTURE(entry.path().string());
    const Cluster cluster = parse_cluster(read_file(entry.path()));
    if (!cluster.context.contains("source")) continue;
    ++machines;
    CHECK(cluster.devices.size() == 8);
    CHECK(with_nodes(cluster, 16).devices.size() == 128);
    CHECK(with_nodes(cluster, 1).levels.size() == 1);
  }
  CHECK(machines == 5);
}

}  // namespace pp::cluster_scale_test

TEST_SUITE_END();
