#include "librun/links/rank_links.h"

#include <vector>

#include "libprofile/core/error.h"
#include "tests/support/thread_peers.h"

#include "tests/support/doctest.h"

namespace rank_links_test {

using namespace pp;
using namespace pp::run;

namespace {

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

TEST_SUITE("librun/links/rank_links") {
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

}  // namespace rank_links_test
