#include "librun/transport/link_meter.h"

#include <string>

#include "libprofile/core/error.h"
#include "librun/worker/thread.h"
#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::run;

namespace {

LinkSample sample(std::int64_t bytes, double microseconds) {
  LinkSample result;
  result.size = Bytes(bytes);
  result.time.median = Seconds(1e-6 * microseconds);
  return result;
}

}  // namespace

TEST_SUITE("librun/transport/link_meter") {
  TEST_CASE("the fit finds latency and bandwidth of exact samples") {
    // 10 us + x / (1 GB/s): 1 kB takes 11 us, 9 kB 19 us, 990 kB 1000 us.
    const Level level = fit_link("process", 2, {sample(1000, 11), sample(9000, 19), sample(990000, 1000)});
    CHECK(level.latency.count() == doctest::Approx(10e-6));
    CHECK(level.bandwidth.value == doctest::Approx(1e9));
    CHECK(level.fit_residual < 1e-9);
    CHECK(level.samples.size() == 3);
  }

  TEST_CASE("small messages weigh as much as large ones, and the largest relative error is told") {
    // Two sizes lie on 10 us + x/(1 GB/s); the third takes twice as long as the line through them says.
    const Level level = fit_link("process", 2, {sample(1000, 11), sample(2000, 12), sample(4000, 28)});
    CHECK(level.fit_residual > 0.05);
    CHECK(level.fit_residual < 1.0);
  }

  TEST_CASE("a fit below zero latency is repeated without latency") {
    // Time proportional to the square of the size bends the line below zero: latency 0 and a positive
    // bandwidth.
    const Level level = fit_link("process", 2, {sample(1000, 1), sample(10000, 100)});
    CHECK(level.latency.count() == 0);
    CHECK(level.bandwidth.value > 0);
  }

  TEST_CASE("a link between two cores is measured in both directions at every size") {
    if (allowed_cores().size() < 2) {
      MESSAGE("SKIPPED: one core");
      return;
    }
    LinkOptions options;
    options.largest = Bytes(1 << 14);
    options.repetitions = 6;
    options.warm_up = 2;
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
  }

  TEST_CASE("fewer than two devices, or more than there are cores, are refused") {
    LinkOptions one;
    one.devices = 1;
    CHECK_THROWS_WITH_AS(measure_links(one), "devices = 1: a link needs at least 2", Error);
    LinkOptions many;
    many.devices = 5000;
    const std::string cores = std::to_string(allowed_cores().size());
    CHECK_THROWS_WITH_AS(measure_links(many),
                         ("5000 devices of 1 cores need 5000 cores, this process may use " + cores +
                          "; ask for fewer devices, or describe the machine with --devices and --bandwidth")
                             .c_str(),
                         Error);
  }
}
