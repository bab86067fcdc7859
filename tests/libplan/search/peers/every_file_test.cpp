// Our search under each peer's cost model against the peer's own, on every published profile.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "libplan/interop/dnn_partitioning_json.h"
#include "libplan/interop/pipedream_text.h"
#include "libplan/search/peers/peer.h"
#include "libprofile/core/file.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/peers/every_file");

namespace pp::plan {
namespace {

/// Empty where the shared data is absent.
std::vector<std::filesystem::path> profile_files() {
  const std::filesystem::path folder = std::filesystem::path(PP_SHARED_DATA) / "peer-profiles";
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(folder)) {
    std::cout << "SKIPPED: " << folder.string() << " is not there\n";
    return files;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".txt" || extension == ".json") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

Profile profile_of(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  const std::string name = file.stem().string();
  return file.extension() == ".json" ? import_dnn_partitioning(text, name, 1) : import_pipedream(text, name, 1);
}

/// Seconds; nothing when the model refuses the profile or nothing fits.
std::optional<Seconds> objective_of(const Profile& profile, const PeerOptions& options) try {
  const auto result = plan_as_peer(profile, options);
  const PeerPlan* plan = std::get_if<PeerPlan>(&result);
  return plan != nullptr ? std::optional(plan->objective) : std::nullopt;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::usage) throw;
  return std::nullopt;
}

}  // namespace

TEST_CASE("the automatic strategy is never worse than the peer, whatever the profile") {
  int compared = 0;
  for (const std::filesystem::path& file : profile_files()) {
    const Profile profile = profile_of(file);
    CAPTURE(file.string());
    for (const auto& [model, name] : EnumNames<PeerModel>::table) {
      CAPTURE(std::string(name));
      for (const int devices : {2, 4, 8}) {
        CAPTURE(devices);
        // Its forward and backward graphs have too many down-sets for an exact choice of recomputation.
        if (model == PeerModel::piper && file.stem() == "resnet50_training") continue;
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
  }
  if (compared > 0) CHECK(compared >= 8 * 4);  // most models take most of the eight files
}

}  // namespace pp::plan

TEST_SUITE_END();
