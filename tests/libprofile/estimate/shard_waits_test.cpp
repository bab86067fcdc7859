// Groups that share the weights of every layer: waits by hand, what a member holds, and what is refused.
#include "libprofile/estimate/shard_waits.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/estimate/estimate.h"
#include "tests/libprofile/estimate/chains.h"
#include "tests/support/doctest.h"

namespace shard_waits_test {

using namespace pp;
using namespace pp::profile;
using namespace pp::profile::test;

/// Blocks of one layer each, 10 s forward and 20 s backward, of so many bytes; the loss behind them.
struct Blocks {
  std::vector<LayerTime> times;
  std::vector<ShardUnit> units;
  Blocks(int count, double bytes) : times(static_cast<std::size_t>(count) + 1) {
    for (int b = 0; b < count; ++b) {
      times[static_cast<std::size_t>(b)] = {Seconds(10), Seconds(12), Seconds(8)};
      units.push_back({b, b + 1, true, b, bytes, bytes, bytes});
    }
  }
  std::vector<double> waits(const ShardWays& ways, Seconds LayerTime::*pass) const {
    std::vector<double> list;
    for (const LayerTime& wait : shard_waits(times, units, ways)) list.push_back((wait.*pass).count());
    return list;
  }
};

/// Four members, each of which gets 3/4 of the bytes at 3/4 B/s: a second a byte.
ShardWays ways(Sharding sharding = Sharding::full) { return {{4, sharding}, {BytesPerSecond(0.75)}, false}; }

using Waits = std::vector<double>;
const auto kForward = &LayerTime::forward;
const auto kBackward = &LayerTime::input_gradient;

TEST_SUITE("libprofile/estimate/shard_waits") {
  TEST_CASE("a gather hides behind the block before, in both passes") {
    // Forward: gathers end at 4, 8 (of block 1, computing until 14), ...
    CHECK(Blocks(3, 4).waits(ways(), kForward) == Waits{4, 0, 0, 0});
    // Backward: 4 s until the first block is there, and 4 s for the last one's gradients.
    CHECK(Blocks(3, 4).waits(ways(), kBackward) == Waits{4, 0, 4, 0});
  }

  TEST_CASE("slow links set the pace: a gather of each block forward, a gather and a reduction backward") {
    // Gathers end at 15, 30, 45, as if no block computed; blocks begin there.
    CHECK(Blocks(3, 15).waits(ways(), kForward) == Waits{15, 5, 5, 0});
    // Gathered at 15, 30; block 0 computes until 35, block 1 until 55; its gradients until 50, then block 2's
    // weights until 65, block 1's gradients until 80, block 2's (it computes until 85) until 100.
    CHECK(Blocks(3, 15).waits(ways(), kBackward) == Waits{15, 0, 10 + 15, 0});
    // In the mean of many blocks the longer of computing and moving.
    const Blocks many(200, 15);
    double waited = 0;
    for (const double wait : many.waits(ways(), kBackward)) waited += wait;
    CHECK(waited / 200 == doctest::Approx(30 - 20).epsilon(0.02));
  }

  TEST_CASE("two blocks are held at most: the third is not gathered before the first is computed") {
    Blocks blocks(3, 4);
    blocks.units[2].gathered = 14;
    // Block 0 computes from 4 to 14, block 1 until 24; block 2 is gathered from 14 to 28.
    CHECK(blocks.waits(ways(), kForward) == Waits{4, 0, 4, 0});
  }

  TEST_CASE("weights that stay are gathered once; a forward in the backward hides more") {
    CHECK(Blocks(3, 15).waits(ways(Sharding::gradients), kForward) == Waits{15, 5, 5, 0});
    CHECK(Blocks(3, 15).waits(ways(Sharding::gradients), kBackward) == Waits{0, 0, 15, 0});
    ShardWays again = ways();
    again.again = true;  // 30 s each
    CHECK(Blocks(3, 15).waits(again, kBackward) == Waits{15, 0, 15, 0});
  }

  TEST_CASE("each gather and each reduction has log2 of the members' latencies") {
    ShardWays late = ways();
    late.link.latency = Seconds(1);
    CHECK(Blocks(3, 4).waits(late, kForward) == Waits{6, 0, 0, 0});
    CHECK(Blocks(3, 4).waits(late, kBackward) == Waits{6, 0, 6, 0});
  }

  TEST_CASE("what a member holds: a part of every layer, two blocks' weights and one's gradients") {
    const ModelGraph graph = chain({linear("first", 8), linear("block0.a", 64), linear("block0.b", 8),
                                    linear("block1.a", 8), linear("last", 8)},
                                   {{8}});
    DeviceSpec device = plain_device();
    device.tensor_link = Link{.bandwidth = BytesPerSecond(1e9)};
    const auto estimated = [&](ShardGroup group, std::vector<std::int64_t> sizes) {
      return estimate_profile(graph, device, {.micro_batch_sizes = std::move(sizes), .shard_group = group});
    };
    const Profile alone = estimated({}, {2}), full = estimated({4, Sharding::full}, {2}),
                  gradients = estimated({4, Sharding::gradients}, {2});
    CHECK(full.micro_batch_sizes == std::vector<std::int64_t>{8});  // two samples of each
    const std::int64_t block0 = 4 * (64 * 9 + 8 * 65);
    for (std::size_t l = 0; l < full.layers.size(); ++l) {
      INFO(full.layers[l].name);
      const std::int64_t whole = alone.layers[l].parameters.value;
      CHECK(full.layers[l].parameters.value == whole / 4);
      CHECK(full.layers[l].parameter_count == alone.layers[l].parameter_count / 4);
      // What is in no block stays gathered.
      const bool in_block = l >= 1 && l <= 3;
      CHECK(full.layers[l].buffers.value == (in_block ? 0 : whole - whole / 4));
      CHECK(gradients.layers[l].buffers.value == whole - whole / 4);
      CHECK(full.layers[l].points[0].saved == alone.layers[l].points[0].saved);
      CHECK(full.layers[l].points[0].output == alone.layers[l].points[0].output);
    }
    CHECK((full.layers[1].points[0].workspace - alone.layers[1].points[0].workspace).value ==
          2 * block0 * 3 / 4 + block0);
    CHECK((gradients.layers[1].points[0].workspace - alone.layers[1].points[0].workspace).value == block0);
    CHECK(full.optimizers[0].parameters.value == alone.optimizers[0].parameters.value / 4);
    CHECK((parse_profile(dump_json(to_json(full))) == full));
    CHECK((parse_profile(dump_json(to_json(gradients))) == gradients));
    CHECK_FALSE(to_json(alone).contains("shard_degree"));
  }

  TEST_CASE("with checkpoints a block's weights are gathered once for both forward and backward") {
    const ModelGraph graph =
        chain({linear("block0.a", 64), linear("block1.a", 64), linear("block2.a", 64)}, {{64}});
    DeviceSpec device = plain_device();
    device.tensor_link = Link{.bandwidth = BytesPerSecond(1e6)};  // moving alone counts
    const auto backward = [&](Checkpoint checkpoint) {
      const Profile profile = estimate_profile(
          graph, device,
          {.micro_batch_sizes = {1}, .shard_group = {2, Sharding::full}, .checkpoint = checkpoint});
      Seconds sum{};
      for (const LayerProfile& one : profile.layers) sum += one.points[0].backward.median;
      return sum.count();
    };
    const double block = 4 * 65 * 64 / 2 / 1e6;
    CHECK(backward(Checkpoint::none) == doctest::Approx(6 * block).epsilon(0.01));
    CHECK(backward(Checkpoint::blocks) == doctest::Approx(6 * block).epsilon(0.01));
  }

  TEST_CASE("experts that are divided are not sharded, too") {
    DeviceSpec device = plain_device();
    device.tensor_link = Link{.bandwidth = BytesPerSecond(1e9)};
    CHECK_THROWS_WITH_AS(
        estimate_profile(chain({layer("block0.a", "mixture_of_experts",
                                      {{"num_experts", std::int64_t{4}},
                                       {"experts_per_token", std::int64_t{2}},
                                       {"hidden", std::int64_t{8}},
                                       {"activation", std::string("silu")}})},
                               {{8}}),
                         device,
                         {.micro_batch_sizes = {1}, .expert_degree = 2, .shard_group = {2, Sharding::full}}),
        doctest::Contains("experts that are divided and sharded have no prices yet"), Error);
  }
}

}  // namespace shard_waits_test
