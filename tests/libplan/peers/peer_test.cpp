#include "libplan/peers/peer.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/peers/support.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/peer");

namespace pp::plan::peer_test {
namespace {

/// Two layers of 3 and 1 ms without weights; the first sends 4 MB.
Profile two_layers() { return test::make_profile({{{1, 2, 0, 4'000'000}, {0.5, 0.5}}, {}, {1}}); }

PeerOptions on(PeerModel model, int devices, double bandwidth = 1e9) {
  PeerOptions options;
  options.model = model;
  options.levels = {{devices, BytesPerSecond(bandwidth)}};
  return options;
}

std::string refusal(const PeerOptions& options, const Profile& profile = two_layers()) {
  return pp::test::error_of([&] { plan_as_peer(profile, options); }, ErrorKind::usage);
}

}  // namespace

TEST_CASE("the JSON object names objective, bound, replicas, cuts and the time of the search") {
  // Four machines for both layers: 4 ms / 4; a cut would cost 8 ms over at most three receivers.
  PeerPlan plan = std::get<PeerPlan>(plan_as_peer(two_layers(), on(PeerModel::pipedream_code, 4)));
  const Json json = to_json(plan, Seconds(0.25));
  CHECK(json["cost_model"] == "pipedream-code");
  CHECK(json["strategy"] == "released");
  CHECK(json["certificate"]["objective_s"].get<double>() == doctest::Approx(0.001).epsilon(1e-12));
  CHECK(json["certificate"]["lower_bound_s"] == json["certificate"]["objective_s"]);
  CHECK(json["replicas"] == "4");
  CHECK(json["cuts"].empty());
  CHECK(json["search"]["seconds"] == 0.25);
  CHECK(json["devices"] == 4);
  CHECK(json["levels"][0]["bandwidth_bytes_per_s"] == 1e9);
  CHECK(json["stages"][0]["compute_s"].get<double>() == doctest::Approx(0.001).epsilon(1e-12));
}

TEST_CASE("cuts count layers in the order of the stages") {
  PeerPlan plan;
  plan.stages = {{{"a", "c"}, 3, {}}, {{"b"}, 1, {}}, {{"d", "e"}, 2, {}}};
  CHECK(cuts_of(plan) == std::vector<int>{2, 3});
  CHECK(replicas_text(plan) == "3-1-2");
}

TEST_CASE("what a model cannot use is refused, with the remedy") {
  const auto code = PeerModel::pipedream_code;
  PeerOptions none = on(code, 2);
  none.levels.clear();
  CHECK(refusal(none) == "the cost model pipedream-code needs a machine; add --devices N");
  CHECK(refusal(on(code, 0)) == "devices = 0; give at least 1");
  CHECK(refusal(on(code, 2, 0)) ==
        "the cost model pipedream-code needs a bandwidth above 0; add --bandwidth RATE");
  CHECK(refusal(on(PeerModel::piper, 2, 0)) ==
        "the cost model piper needs a bandwidth above 0; add --bandwidth RATE");
  PeerOptions deep = on(PeerModel::piper, 2);
  deep.levels.push_back({2, BytesPerSecond(1e9)});
  CHECK(refusal(deep) ==
        "the cost model piper knows at most 1 level, not 2; give --devices N, or use pipedream-code");
  // 10^9 pairs of machines over all intervals: on the outermost level 2 of two layers, sqrt(10^9 / 2) =
  // 22,360.7; on the levels inside 2 * 2, sqrt(10^9 / 4) = 15,811.4.
  CHECK(
      refusal(on(code, 22'361)) ==
      "the cost model pipedream-code searches 2 layers on at most 22360 devices of one level, not 22361; give "
      "fewer, or split them over more levels with --levels");
  PeerOptions nested = on(code, 15'812);
  nested.levels.push_back({2, BytesPerSecond(1e9)});
  CHECK(
      refusal(nested) ==
      "the cost model pipedream-code searches 2 layers on at most 15811 devices of one level, not 15812; give "
      "fewer, or split them over more levels with --levels");
  PeerOptions limit = on(code, 2);
  limit.memory_limit = Bytes(0);
  CHECK(refusal(limit) == "memory_limit = 0 bytes; give at least 1");
  PeerOptions compression = on(code, 2);
  compression.activation_compression = 0.0;
  CHECK(refusal(compression) == "the activation compression ratio must be above 0");
  PeerOptions batch = on(PeerModel::piper, 2);
  batch.micro_batches_in_batch = 0;
  CHECK(refusal(batch) == "micro_batches_in_batch = 0; give at least 1");
}

TEST_CASE("figures that look like another unit are refused unless forced") {
  CHECK(refusal(on(PeerModel::pipedream_code, 2, 1e3)) ==
        "bandwidth 1 kB/s is outside 1e6..1e13 bytes per second: another unit? Allow it with --force-units");
  const Profile slow = test::make_profile({{{2e6, 4e6}}, {}, {1}});  // 6,000 s
  CHECK(refusal(on(PeerModel::pipedream_code, 2), slow) ==
        "the profile's forward and backward time of one sample is 100 min, outside 1e-9..1e3 s: not seconds? "
        "Allow "
        "it with --force-units");
  CHECK(test::plan_of(slow, on(PeerModel::pipedream_code, 2)).has_value());
}

TEST_CASE("DAPPLE's mini-batch is a multiple of the profile's batch") {
  const Profile profile = test::make_profile({{{1, 2}, {1, 2}}, {}, {8}});
  PeerOptions options = on(PeerModel::dapple, 2);
  options.mini_batch = 4;
  CHECK(refusal(options, profile) ==
        "mini_batch = 4 is not a multiple of the profile's batch of 8 samples, which is DAPPLE's micro-batch; "
        "use 8");
  options.mini_batch = 20;
  CHECK(refusal(options, profile) ==
        "mini_batch = 20 is not a multiple of the profile's batch of 8 samples, which is DAPPLE's micro-batch; "
        "use "
        "16 or 24");
}

}  // namespace pp::plan::peer_test

TEST_SUITE_END();
