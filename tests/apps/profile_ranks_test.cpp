// pp-profile run under mpirun: a profile for each class of devices, and their speeds in the cluster.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/profile/run_ranks.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/profile.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace profile_ranks_test {
namespace {

using pp::test::Outcome;
using Words = std::vector<std::string>;

const std::string kBin = pp::test::program();

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct RanksFolder : pp::test::TemporaryFolder {
  /// `line` behind mpirun's own options, in a shell; ranks are bound to cores of their own.
  Outcome mpirun(const std::string& line) const {
    return pp::test::run_checked(
        "/bin/sh",
        {"-c",
         "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 exec " PP_MPIRUN
         " --bind-to core " +
             line},
        path());
  }
  static std::string profile(const std::string& arguments) {
    return kBin + "/pp-profile run " + arguments + " --quick --budget 20ms --micro-batch-sizes 4";
  }
  pp::Cluster cluster() const { return pp::parse_cluster(pp::read_file(path() / "c.json")); }
  Words profiles() const {
    Words names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("p") && name.ends_with(".json")) names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
};

/// Fewer cores than ranks: mpirun binds none.
bool cannot(const Outcome& outcome) {
  const bool short_of_cores = outcome.code != 0 && has(outcome.err, "not enough slots");
  if (short_of_cores) pp::test::skip("one core");
  return short_of_cores;
}

bool without_mpi() {
  if (std::string_view(PP_MPIRUN).empty()) pp::test::skip("built without MPI");
  return std::string_view(PP_MPIRUN).empty();
}

const std::string kModel = "mlp:inputs=8,width=16,layers=2";

}  // namespace

TEST_SUITE("apps/profile_ranks") {
  TEST_CASE("ranks with equal devices make one profile, and leave the speeds at 1") {
    if (without_mpi()) return;
    const RanksFolder folder;
    const Outcome links = folder.mpirun("-n 2 " + kBin + "/pp-profile links --largest 2KiB -q -o c.json");
    if (cannot(links)) return;
    REQUIRE(links.code == 0);
    const Outcome outcome =
        folder.mpirun("-n 2 " + RanksFolder::profile(kModel + " -o p.json --cluster c.json"));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(has(outcome.out, ": ranks 0 1, speed 1.000, p.json\n"));
    CHECK(folder.profiles() == Words{"p.json"});
    CHECK(pp::parse_profile(pp::read_file(folder.path() / "p.json")).micro_batch_sizes.size() == 1);
    for (const pp::Device& device : folder.cluster().devices) CHECK(device.speed == 1);
  }

  TEST_CASE("ranks with unequal devices make a profile for each class, and pp-plan takes their speeds") {
    if (without_mpi()) return;
    const RanksFolder folder;
    if (cannot(folder.mpirun("-n 2 " + kBin + "/pp-profile links --largest 2KiB -q -o c.json"))) return;
    const std::string rest = kModel + " -o p.json --cluster c.json --device cpu:1x";
    const Outcome outcome = folder.mpirun("-n 1 " + RanksFolder::profile(rest + "1") + " : -n 1 " +
                                          RanksFolder::profile(rest + "2"));
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Words files = folder.profiles();
    REQUIRE(files.size() == 2);
    CHECK(files[0].starts_with("p-"));
    CHECK(files[0].ends_with("-2.json"));
    CHECK(files[1] == files[0].substr(0, files[0].size() - std::string("-2.json").size()) + ".json");
    CHECK(has(outcome.out, ": ranks 0, speed 1.000, " + files[1] + "\n"));
    const pp::Cluster cluster = folder.cluster();
    CHECK(cluster.devices[0].speed == 1);
    CHECK(cluster.devices[1].speed > 0);
    const Outcome plan = pp::test::run_checked(
        kBin + "/pp-plan",
        {files[1], "--cluster", "c.json", "--mini-batch", "8", "--micro-batches", "2", "-q", "-o", "plan.json"},
        folder.path());
    CAPTURE(plan.err);
    CHECK(plan.code == 0);
  }

  TEST_CASE("each rank takes the next of the devices that it sees as others do, and the first of its own") {
    using pp::profile_tool::place_of;
    // Two ranks share both GPUs, one has one of its own (srun --gpus-per-task=1), one is elsewhere.
    const std::vector<pp::profile_tool::RankSight> all{
        {"a", "id1 id2 "}, {"a", "id3 "}, {"a", "id1 id2 "}, {"b", "id1 id2 "}};
    CHECK(place_of(all, 0).beside == 0);
    CHECK(place_of(all, 1).beside == 0);
    CHECK(place_of(all, 2).beside == 1);
    CHECK(place_of(all, 3).beside == 0);
    CHECK(place_of(all, 2).on_host == 2);
    CHECK(place_of(all, 3).on_host == 0);
  }

  TEST_CASE("files that cannot be written, and a cluster of other ranks, are found before the measurement") {
    if (without_mpi()) return;
    const RanksFolder folder;
    pp::write_file(folder.path() / "c.json",
                   pp::dump_json(pp::to_json(pp::flat_cluster(2, pp::DeviceKind::cpu, pp::BytesPerSecond(1e9),
                                                              pp::Seconds(0), pp::Bytes(0)))));
    // A measurement of this length would be ended by the test's own limit.
    const auto refused = [&](const std::string& one, const std::string& two, const std::string& message) {
      const auto rank = [](const std::string& arguments) {
        return "-n 1 " + kBin + "/pp-profile run " + kModel + " --budget 3h --precision 0.001 " + arguments;
      };
      const Outcome outcome = folder.mpirun(rank(one) + " : " + rank(two));
      if (cannot(outcome)) return;
      CHECK(outcome.code == 2);
      CAPTURE(outcome.err);
      CHECK(has(outcome.err, "pp-profile: error: " + message));
      CHECK(folder.profiles().empty());
    };
    refused("-o no/p.json", "-o no/p.json", "no/p.json: cannot be written: No such file or directory\n");
    refused("-o p.json --cluster none.json", "-o p.json", "none.json: cannot be read: ");
    refused("-o p.json --cluster c.json", "-o p.json", "c.json: no device 0 on node ");
    refused("-o - --device cpu:1x1", "-o - --device cpu:1x2",
            "the ranks have 2 classes of devices, and standard output takes one profile; name a file\n");
  }

  TEST_CASE("what one rank cannot do ends all, said once with its rank") {
    if (without_mpi()) return;
    const RanksFolder folder;
    const Outcome outcome = folder.mpirun("-n 1 " + RanksFolder::profile(kModel + " -o p.json") + " : -n 1 " +
                                          RanksFolder::profile("nowhere.json -o p.json"));
    if (cannot(outcome)) return;
    CHECK(outcome.code == 2);
    const std::size_t first = outcome.err.find("pp-profile: error: rank 1 on ");
    REQUIRE(first != std::string::npos);
    CHECK(has(outcome.err, "nowhere.json"));
    CHECK(outcome.err.find("pp-profile: error", first + 1) == std::string::npos);
    CHECK(folder.profiles().empty());
  }

  TEST_CASE("--cluster is for several ranks") {
    const RanksFolder folder;
    const Outcome outcome =
        pp::test::run_checked(kBin + "/pp-profile", {"run", kModel, "--cluster", "c.json"}, folder.path());
    CHECK(outcome.code == 2);
    CHECK(
        outcome.err ==
        "pp-profile: error: --cluster gets the speeds of several ranks; start with mpirun, or leave it out\n");
  }
}

}  // namespace profile_ranks_test
