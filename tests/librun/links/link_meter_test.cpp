#include "librun/links/local_links.h"

#include <string>

#include "libprofile/core/error.h"
#include "libprofile/device/machine.h"
#include "tests/support/skip.h"
#include "tests/support/torch_test.h"

namespace link_meter_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/links/link_meter") {
  TEST_CASE("a link between two cores is measured in both directions at every size") {
    if (profile::usable_cores().size() < 2) {
      pp::test::skip("one core");
      return;
    }
    LinkOptions options;
    options.sweep.largest = Bytes(1 << 14);
    options.sweep.repetitions = 6;
    options.sweep.warm_up = 2;
    options.largest_sum = Bytes(1 << 15);
    double done = 0;
    const Cluster cluster = measure_links(options, [&](double share) { done = share; });
    CHECK(done == 1);
    CHECK(cluster.measured);
    REQUIRE(cluster.devices.size() == 2);
    CHECK(cluster.devices[0].cores != cluster.devices[1].cores);
    CHECK(cluster.devices[0].memory.value > 0);
    REQUIRE(cluster.levels.size() == 1);
    CHECK(cluster.levels[0].name == "process");
    REQUIRE(cluster.levels[0].samples.size() == 5);  // 1, 2, 4, 8, 16 KiB
    for (const LinkSample& size : cluster.levels[0].samples) {
      CHECK(size.time.samples == 12);  // 6 there and 6 back
      CHECK(size.time.low <= size.time.median);
      CHECK(size.time.median <= size.time.high);
      CHECK(size.time.median.count() > 0);
    }
    REQUIRE(cluster.levels[0].all_reduce.has_value());
    REQUIRE(cluster.levels[0].all_reduce->samples.size() == 6);  // 32 KiB too
    for (const LinkSample& size : cluster.levels[0].all_reduce->samples) CHECK(size.time.samples == 6);
  }

  TEST_CASE("sizes double from the smallest to the largest, and there are two at least") {
    CHECK(
        (sizes_of({.smallest = Bytes(3), .largest = Bytes(13)}) == std::vector{Bytes(3), Bytes(6), Bytes(12)}));
    CHECK_THROWS_WITH_AS(sizes_of({.smallest = Bytes(8), .largest = Bytes(15)}),
                         "link sizes 8 B to 15 B: give at least a doubling", Error);
  }

  TEST_CASE("fewer than two devices, or more than there are cores, are refused") {
    LinkOptions one;
    one.devices = 1;
    CHECK_THROWS_WITH_AS(measure_links(one), "devices = 1: a link needs at least 2", Error);
    LinkOptions many;
    many.devices = 5000;
    const std::string cores = std::to_string(profile::usable_cores().size());
    CHECK_THROWS_WITH_AS(measure_links(many),
                         ("5000 devices of 1 cores need 5000 cores, this process may use " + cores +
                          "; ask for fewer devices, or describe the machine with --devices and --bandwidth")
                             .c_str(),
                         Error);
  }
}

}  // namespace link_meter_test
