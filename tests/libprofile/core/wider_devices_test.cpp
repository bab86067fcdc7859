#include "libprofile/core/cluster.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace wider_devices_test {

using namespace pp;

namespace {

std::vector<std::vector<int>> cores_of(const Cluster& cluster) {
  std::vector<std::vector<int>> cores;
  for (const Device& device : cluster.devices) cores.push_back(device.cores);
  return cores;
}

Cluster flat(int count) {
  return flat_cluster(count, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-6), Bytes(100));
}

}  // namespace

TEST_SUITE("libprofile/core/wider_devices") {
  TEST_CASE("neighbours become one device; what is left over is in none") {
    Cluster five = flat(5);
    for (int i = 0; i < 5; ++i) five.devices[static_cast<std::size_t>(i)].cores = {10 + i};
    five.devices[2].speed = 0.5;
    const Cluster wide = with_wider_devices(five, 2, 1);
    CHECK(cores_of(wide) == std::vector<std::vector<int>>{{10, 11}, {12, 13}});
    CHECK(wide.devices[1].id == DeviceId{1});
    CHECK(wide.devices[1].index == 1);
    CHECK(wide.devices[0].memory == Bytes(200));
    CHECK(wide.devices[0].speed == 1);
    CHECK(wide.devices[1].speed == 0.5);
    REQUIRE(wide.levels.size() == 1);
    CHECK(wide.levels[0].devices == 2);
    CHECK(wide.levels[0].bandwidth == BytesPerSecond(1e9));
  }

  TEST_CASE("groups of the innermost level stay apart, open cores are numbered on each node") {
    // Two nodes of three: one device of two cores each, the third core of each node is left over.
    const std::vector<LevelSpec> levels{{3, BytesPerSecond(2e9)}, {2, BytesPerSecond(1e9)}};
    const Cluster wide =
        with_wider_devices(nested_cluster(levels, DeviceKind::cpu, Seconds(0), Bytes(0)), 2, 1);
    CHECK(cores_of(wide) == std::vector<std::vector<int>>{{0, 1}, {0, 1}});
    CHECK(wide.devices[0].node == "a");
    CHECK(wide.devices[1].node == "b");
    CHECK(wide.devices[1].index == 0);
    CHECK(wide.levels[0].devices == 1);
    CHECK(wide.levels[1].devices == 2);
    // Devices of two cores each, joined in pairs: numbers 0 to 3, then 4 to 7.
    CHECK(cores_of(with_wider_devices(flat(4), 2, 2)) ==
          std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  }

  TEST_CASE("wide devices share cards where there are more cards than devices") {
    const std::vector<LevelSpec> levels{{8, BytesPerSecond(2e9)}, {2, BytesPerSecond(1e9)}};
    Cluster cluster = nested_cluster(levels, DeviceKind::cpu, Seconds(0), Bytes(0));
    cluster.levels[0].cards = 8;
    CHECK(with_wider_devices(cluster, 2, 1).levels[0].cards == 4);
    cluster.levels[0].cards = 2;
    CHECK(with_wider_devices(cluster, 2, 1).levels[0].cards == 2);
  }

  TEST_CASE("what cannot be joined is refused") {
    CHECK(test::error_text([] { return with_wider_devices(flat(2), 4, 1); }) ==
          "[usage] groups of 2 devices make none of 4 times as many cores");
    Cluster two = flat(2);
    two.devices[1].node = "b";
    CHECK(test::error_text([&] { return with_wider_devices(two, 2, 1); }) ==
          "[usage] devices 0 and 1 stand on different nodes (, b) and make no device of more cores");
  }
}

}  // namespace wider_devices_test
