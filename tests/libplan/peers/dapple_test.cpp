#include "libplan/peers/dapple.h"

#include <numeric>

#include "libprofile/core/index.h"
#include "tests/libplan/peers/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/dapple");

namespace pp::plan::dapple_test {
namespace {

using Devices = std::vector<int>;

PeerOptions on(int servers, int devices, int mini_batch) {
  PeerOptions options;
  options.model = PeerModel::dapple;
  options.levels = {{devices, BytesPerSecond(0)}, {servers, BytesPerSecond(0)}};
  options.mini_batch = mini_batch;
  return options;
}

Devices range(int first, int count) {
  Devices devices(at(count));
  std::iota(devices.begin(), devices.end(), first);
  return devices;
}

/// What `auto` promises to search, by enumeration: consecutive devices, at most as many stages as
/// micro-batches; with copies, all devices.
double least_latency(const DappleCosts& costs, int copies) {
  const int devices = costs.machine.devices();
  double least = std::numeric_limits<double>::infinity();
  for (int used = 1; used <= devices; ++used) {
    Partition stages;
    test::each_split(0, costs.chain.size(), used, stages, [&](const Partition& all) {
      DapplePipeline pipeline{cuts_of(all), {}, copies};
      int first = 0;
      for (const StageRange& stage : all) {
        if (copies > 1 && stage.replicas != copies) return;
        pipeline.devices.push_back(range(first, stage.replicas));
        first += stage.replicas;
      }
      if (copies > 1 && first != devices) return;
      if (std::ssize(all) * copies <= costs.batches) least = std::min(least, costs.latency(pipeline));
    });
  }
  return least;
}

}  // namespace

TEST_CASE(
    "rates between devices: a ring inside a server uses its links in pairs, one between servers is slower") {
  const DappleMachine machine{2, 4};
  CHECK(all_reduce_per_byte(machine, {2}) == 0);
  CHECK(all_reduce_per_byte(machine, {0, 1}) == doctest::Approx(1.0 / 25e9));        // 2*(1/2)/25e9/1
  CHECK(all_reduce_per_byte(machine, {0, 1, 2, 3}) == doctest::Approx(1.5 / 50e9));  // 2*(3/4)/25e9/2
  CHECK(all_reduce_per_byte(machine, {3, 4}) == doctest::Approx(1.0 / 3e9));
  CHECK(transfer_per_byte(machine, {0}, {1, 2}) == doctest::Approx(1 / 25e9));
  CHECK(transfer_per_byte(machine, {0, 1, 4}, {5}) ==
        doctest::Approx(2.0 / 3 / 1e9));  // two of three from outside
  CHECK(transfer_per_byte(machine, {0}, {3, 4}) == doctest::Approx(1 / 3e9));
}

TEST_CASE("the latency of two stages, by hand") {
  // Layers of 4, 2 and 6 ms and 3, 6 and 9 MB of weights at the profile's batch, 5 MB behind layer 1; two
  // batches in the global one, two servers of one device, cut 2: C = 12 and 12 ms. X = 10 MB / 1e9 = 10 ms.
  // block = max(12, 12, 10)/2 = 6; L = 6*(2-1) + 24/2 + 10/2 = 23, no all-reduce.
  const Profile profile =
      test::make_profile({{{1, 3, 3'000'000}, {1, 1, 6'000'000, 5'000'000}, {2, 4, 9'000'000}}, {}, {1}});
  const PeerInput input = peer_input(profile);
  const Chain chain = chain_of(input, input.orders.front());
  const DappleCosts pair{chain, {2, 1}, 2};
  CHECK(pair.latency({{2}, {{0}, {1}}}) == doctest::Approx(0.023).epsilon(1e-12));
  // Two servers of two: stages on devices 0, 2 and 1, 3. C/2 = 6 and 6; receivers in two servers: X = 10/3 ms.
  // block = 3; L = 3 + 12 + 5/3; reduced: 3 + 6 + 9 = 18 MB for stage 0 (the next stage's first layer too):
  // 2*(1/2)*18/3 = 6 ms, not hidden; stage 1: 9/3 - 3 = 0. Together 22.667.
  const DappleCosts four{chain, {2, 2}, 2};
  CHECK(four.latency({{2}, {{0, 2}, {1, 3}}}) == doctest::Approx(0.015 + 0.005 / 3 + 0.006).epsilon(1e-12));
  // Two copies: the same devices, one micro-batch each. block = 6, (1-1)*block = 0, work 24/2, transfer as
  // before; stage 1 hides 6 of its 3 ms.
  CHECK(four.latency({{2}, {{0, 2}, {1, 3}}, 2}) == doctest::Approx(0.012 + 0.005 / 3 + 0.006).epsilon(1e-12));
}

TEST_CASE("auto equals the better of enumeration and the released candidates") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const Profile profile = test::random_profile(random, random.integer(1, 6), false);
    const int servers = random.integer(1, 2);
    PeerOptions options = on(servers, random.integer(1, 4 / servers), random.integer(1, 6));
    const double released = test::plan_of(profile, options)->objective.count();
    options.strategy = PeerStrategy::automatic;
    const double found = test::plan_of(profile, options)->objective.count();

    const PeerInput input = peer_input(profile);
    const Chain chain = chain_of(input, input.orders.front());
    const DappleMachine machine{servers, options.levels.front().devices};
    const DappleCosts costs{chain, machine, options.mini_batch};
    double expected = std::min(released, least_latency(costs, 1));
    for (int copies = 2; copies < machine.devices(); ++copies) {
      if (machine.devices() % copies == 0 && options.mini_batch % copies == 0)
        expected = std::min(expected, least_latency(costs, copies));
    }
    CHECK(found == doctest::Approx(expected).epsilon(1e-12));
    CHECK(found <= released);
  }
}

TEST_CASE("fewer layers than devices, and device counts without divisors, are planned") {
  const Profile profile = test::make_profile({{{1, 2}, {1, 2}, {1, 2}}, {}, {1}});
  CHECK(test::plan_of(profile, on(2, 8, 16)).has_value());
  CHECK(test::plan_of(profile, on(7, 1, 16)).has_value());
  CHECK(replicas_text(*test::plan_of(profile, on(1, 1, 4))) == "1");
}

TEST_CASE("fresh, append and scatter placements") {
  const DappleMachine machine{3, 2};
  // Nothing in use: fresh fills servers, append finds none, scatter takes one each.
  CHECK(placements(machine, std::vector<char>(6, 0), 3) == std::vector<Devices>{{0, 1, 2}, {0, 2, 4}});
  // Device 0 in use: fresh 2, 3; append the rest of server 0 only (too few); scatter 1 and 2.
  CHECK(placements(machine, {1, 0, 0, 0, 0, 0}, 2) == std::vector<Devices>{{2, 3}, {1, 2}});
  // One device wanted: append takes 1, as does scatter.
  CHECK(placements(machine, {1, 0, 0, 0, 0, 0}, 1) == std::vector<Devices>{{2}, {1}});
  CHECK(placements(machine, std::vector<char>(6, 1), 1).empty());
}

}  // namespace pp::plan::dapple_test

TEST_SUITE_END();
