// Our search under each peer's cost model against the peer's own, on every published profile.
#include "libplan/peers/peer.h"
#include "libplan/peers/pipedream_text.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/every_file");

namespace pp::plan {
namespace {

/// Seconds; nothing when the model refuses the profile or nothing fits.
std::optional<Seconds> objective_of(const Profile& profile, const PeerOptions& options) try {
  const auto result = plan_as_peer(profile, options);
  const PeerPlan* plan = std::get_if<PeerPlan>(&result);
  return plan != nullptr ? std::optional(plan->objective) : std::nullopt;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::usage) throw;
  return std::nullopt;
}

/// Under every cost model that takes the profile, on 2, 4 and 8 devices. How many were compared.
int check_never_worse(const Profile& profile) {
  int compared = 0;
  for (const auto& [model, name] : EnumNames<PeerModel>::table) {
    CAPTURE(std::string(name));
    for (const int devices : {2, 4, 8}) {
      CAPTURE(devices);
      // Its forward and backward graphs have too many down-sets for an exact choice of recomputation.
      if (model == PeerModel::piper && profile.model.name == "resnet50_training") continue;
      PeerOptions options;
      options.model = model;
      options.levels = {{devices, BytesPerSecond(1e9)}};
      options.micro_batches_in_batch = 8;
      options.mini_batch = 64;
      const std::optional<Seconds> peer = objective_of(profile, options);
      if (!peer) continue;
      options.strategy = PeerStrategy::automatic;
      options.machines = MachinesRule::at_most;
      const std::optional<Seconds> ours = objective_of(profile, options);
      REQUIRE(ours);
      CHECK(*ours <= *peer * (1 + 1e-12));
      ++compared;
    }
  }
  return compared;
}

}  // namespace

TEST_CASE("the automatic strategy is never worse than the peer, whatever the profile") {
  int compared = 0;
  for (const char* name : {"alexnet", "gnmt", "resnet50", "vgg16", "bert24_training", "resnet50_training",
                           "piper_bert32a100", "piper_resnet"}) {
    CAPTURE(name);
    compared += check_never_worse(pp::test::peer_profile(name));
  }
  CHECK(compared >= 8 * 4);  // most models take most of the eight
}

TEST_CASE("the same on DAPPLE's profiles") {
  for (const auto& [name, batch] : {std::pair{"vgg-19-pbs-32", 32}, std::pair{"bert-48-pbs-2", 2}}) {
    const auto text = pp::test::dapple_text(name);
    if (!text) return;
    CAPTURE(name);
    CHECK(check_never_worse(import_pipedream(*text, name, batch)) >= 4);
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
