#include "librun/links/message_cost.h"

#include "librun/links/link_levels.h"
#include "tests/librun/links/link_samples.h"
#include "tests/support/costly_peers.h"

#include "tests/support/doctest.h"

#include <cmath>

namespace message_cost_test {

using namespace pp;
using namespace pp::run;
using pp::run::test::sample;
using pp::test::between;
using pp::test::Wire;

namespace {

/// The nearest to `expected` of three measurements: a pause of the machine shifts some, a defect
/// all.
double nearest_ms(Wire& wire, double expected) {
  double nearest = 1e9;
  for (int i = 0; i < 3; ++i) {
    const KeptTime kept = between(wire, [&](Peers& peers, int other) {
      return measure_kept(peers, other, peers.rank() == 0, Bytes(4096), wire.transfer);
    });
    CHECK(kept.size == Bytes(4096));
    const double ms = 1e3 * kept.time.count();
    if (std::abs(ms - expected) < std::abs(nearest - expected)) nearest = ms;
  }
  return nearest;
}

double both_ways_ms(bool half) {
  using namespace std::chrono_literals;
  Wire wire{.transfer = 100ms, .half = half};
  const Seconds both = between(wire, [](Peers& peers, int other) {
    return measure_both_ways(peers, other, peers.rank() == 0, Bytes(4096), 3);
  });
  return 1e3 * both.count();
}

/// 10 us, 1 GB/s.
Level level_of() {
  Level level;
  level.bandwidth = BytesPerSecond(1e9);
  level.latency = Seconds(10e-6);
  return level;
}

KeptTime kept(std::int64_t bytes, double us) { return {Bytes(bytes), Seconds(1e-6 * us)}; }

}  // namespace

TEST_SUITE("librun/links/message_cost") {
  using namespace std::chrono_literals;

  // Kept is the difference of two runs of 24 ms, over two messages: a machine whose speed changes by a tenth
  // meanwhile is 1.2 ms wrong.
  TEST_CASE("a message keeps its ends as long as the end that it keeps longer") {
    Wire sender{.sending = 24ms, .receiving = 1ms, .transfer = 4ms};
    CHECK(nearest_ms(sender, 24) == doctest::Approx(24).epsilon(0.25));
    Wire receiver{.receiving = 24ms, .transfer = 4ms};
    CHECK(nearest_ms(receiver, 24) == doctest::Approx(24).epsilon(0.25));
  }

  TEST_CASE("a message that goes by itself keeps nobody from work") {
    Wire wire{.transfer = 4ms};
    CHECK(std::abs(nearest_ms(wire, 0)) < 3);
  }

  TEST_CASE("two messages at once: one after the other where a port serves both ways") {
    CHECK(both_ways_ms(false) < 100 * kFullDuplex);
    CHECK(both_ways_ms(true) >= 200);  // 100 ms each
  }

  TEST_CASE("of a sweep five sizes are tried, the smallest and the largest among them") {
    const auto tried = [](std::size_t sizes) {
      std::vector<std::size_t> found;
      for (std::size_t i = 0; i < sizes; ++i) {
        if (is_tried(i, sizes)) found.push_back(i);
      }
      return found;
    };
    CHECK(tried(14) == std::vector<std::size_t>{0, 3, 6, 9, 13});
    CHECK(tried(5) == std::vector<std::size_t>{0, 1, 2, 3, 4});
    CHECK(tried(2) == std::vector<std::size_t>{0, 1});
  }

  // 2 us, and a quarter of what 1 GB/s takes: 0.25 us per kB.
  TEST_CASE("a line through the kept times: where it begins is the cost, its slope what does not overlap") {
    Level level = level_of();
    set_message_cost(level, std::vector{kept(1000, 2.25), kept(10'000, 4.5), kept(100'000, 27)});
    CHECK(level.message_cost.count() == doctest::Approx(2e-6));
    CHECK(level.overlap == doctest::Approx(0.75));
  }

  TEST_CASE("kept times below zero are noise: no cost, and all overlaps") {
    Level level = level_of();
    set_message_cost(level, std::vector{kept(1000, -0.1), kept(10'000, -0.3), kept(100'000, -0.2)});
    CHECK(level.message_cost == Seconds(0));
    CHECK(level.overlap == 1);
  }

  // 2 us per kB, twice what the link takes: the devices do nothing else meanwhile.
  TEST_CASE("an overlap is a share: not below 0") {
    Level level = level_of();
    set_message_cost(level, std::vector{kept(1000, 2), kept(10'000, 20), kept(100'000, 200)});
    CHECK(level.overlap == 0);
  }

  TEST_CASE("without kept times a level stays as it is") {
    Level level = level_of();
    set_message_cost(level, {});
    CHECK(level == level_of());
  }

  // Three devices on a host, 1 us per kB each pair. Kept per message of 1 and 2 kB: 0.5 us and 1 us, in one
  // pair ten times as long; so half of the bytes' time, and nothing else. Both ways: unknown, 1.9, and at
  // least 1.8 times.
  TEST_CASE("a level has the medians of its pairs") {
    const std::vector<LinkSample> samples{sample(1000, 1), sample(2000, 2)};
    const std::vector<KeptTime> usual{kept(1000, 0.5), kept(2000, 1)}, odd{kept(1000, 5), kept(2000, 10)};
    std::vector<MeasuredPair> pairs{
        {0, 1, samples, usual, {}}, {0, 2, samples, odd, {1.9}}, {1, 2, samples, usual, {1.8, 2.1}}};
    const std::vector<Device> devices(3);
    Level level = build_cluster(devices, pairs, "node").levels.at(0);
    CHECK(level.message_cost.count() == doctest::Approx(0).epsilon(1e-9));
    CHECK(level.overlap == doctest::Approx(0.5));
    CHECK(level.duplex == Duplex::half);
    pairs[2].both_ways = {1.4, 2.1};
    CHECK(build_cluster(devices, pairs, "node").levels.at(0).duplex == Duplex::full);
  }
}

}  // namespace message_cost_test
