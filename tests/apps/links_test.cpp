// pp-profile links: between cores, between mpirun's ranks, and what it refuses.
#include <filesystem>
#include <string_view>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace {

using pp::test::Outcome;

struct Folder : pp::test::TemporaryFolder {
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(program(), arguments, path());
  }
  /// By mpirun. `env` says yes to Open MPI's question whether root may start ranks; other launchers do not ask.
  /// At its end Open MPI keeps memory that AddressSanitizer would call leaked.
  Outcome on_two_ranks(const std::vector<std::string>& line) const {
    std::vector<std::string> arguments{"OMPI_ALLOW_RUN_AS_ROOT=1",
                                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                       "OMPI_MCA_rmaps_base_oversubscribe=1",
                                       "ASAN_OPTIONS=detect_leaks=0",
                                       PP_MPIRUN,
                                       "-n",
                                       "2",
                                       program().string()};
    arguments.insert(arguments.end(), line.begin(), line.end());
    return pp::test::run_checked("/usr/bin/env", arguments, path());
  }
  static std::filesystem::path program() { return pp::test::program("pp-profile"); }
  pp::Cluster cluster() const { return pp::parse_cluster(pp::read_file(path() / "cluster.json")); }
};

std::string refusal(const Outcome& outcome) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  return outcome.err;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool without_mpi() {
  const bool without = std::string_view(PP_MPIRUN).empty();
  if (without) pp::test::skip("built without MPI");
  return without;
}

}  // namespace

TEST_SUITE("apps/links") {
  TEST_CASE("links between cores: levels and the all-reduce, as text and as a file") {
    const Folder folder;
    const Outcome outcome = folder.run({"links", "--largest", "4KiB", "-o", "cluster.json"});
    if (outcome.code == 2 && has(outcome.err, "this process may use 1")) {
      pp::test::skip("one core");
      return;
    }
    REQUIRE(outcome.code == 0);
    CHECK(has(outcome.out, "level process of 2 devices: latency "));
    CHECK(has(outcome.out, "all-reduce of 2 devices: latency "));
    const pp::Cluster cluster = folder.cluster();
    CHECK(cluster.measured);
    REQUIRE(cluster.levels.size() == 1);
    CHECK(cluster.levels[0].samples.size() == 3);  // 1, 2, 4 KiB
    CHECK(cluster.levels[0].all_reduce.has_value());
    CHECK(has(cluster.context.at("command"), "links --largest 4KiB"));
  }

  TEST_CASE("started by mpirun, the ranks are the devices, and one of them speaks") {
    if (without_mpi()) return;
    const Folder folder;
    const Outcome outcome = folder.on_two_ranks({"links", "--largest", "4KiB", "-o", "cluster.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const std::size_t first = outcome.out.find("level node of 2 devices");
    CHECK(first != std::string::npos);
    CHECK(outcome.out.find("level node", first + 1) == std::string::npos);
    const pp::Cluster cluster = folder.cluster();
    CHECK(cluster.devices.size() == 2);
    CHECK(cluster.levels.front().all_reduce.has_value());
    const pp::Level& level = cluster.levels.front();
    const bool keeps = level.message_cost.count() > 0 || level.overlap < 1 || level.duplex == pp::Duplex::half;
    CHECK(has(outcome.out, "a message keeps the devices at its ends from their work for ") == keeps);
  }

  TEST_CASE("where rank 0 cannot write, all ranks end") {
    if (without_mpi()) return;
    const Folder folder;
    const Outcome outcome = folder.on_two_ranks({"links", "--largest", "4KiB", "-o", "missing/cluster.json"});
    CHECK(outcome.code == 2);
    CHECK(has(outcome.err, "missing/cluster.json: cannot be written"));
    CHECK_FALSE(has(outcome.out, "level "));
  }

  TEST_CASE("without MPI, ranks are refused with what to install") {
    const Folder folder;
    const Outcome outcome = pp::test::run_checked(
        "/usr/bin/env",
        {"OMPI_COMM_WORLD_SIZE=2", pp::test::program("pp-profile-without-mpi"), "links", "-o", "cluster.json"},
        folder.path());
    CHECK(refusal(outcome) ==
          "pp-profile: error: this build has no MPI; install it (Debian: libopenmpi-dev), configure again with "
          "-DPP_MPI=ON and build\n");
    CHECK_FALSE(std::filesystem::exists(folder.path() / "cluster.json"));
  }

  TEST_CASE("cpu:2 is core 2 elsewhere: links says that it reads two devices") {
    const Folder folder;
    const Outcome outcome = folder.run({"links", "--devices", "cpu:2", "--largest", "1KiB"});
    CHECK(has(
        outcome.err,
        "pp-profile: warning: --devices cpu:2: a link needs two devices, so this is read as cpu:2x1, 2 devices "
        "of one core each; elsewhere cpu:2 is core 2\n"));
    CHECK_FALSE(
        has(folder.run({"links", "--devices", "cpu:2x1", "--largest", "1KiB"}).err, "warning: --devices"));
  }

  TEST_CASE("bad devices and sizes are refused before anything is measured") {
    const Folder folder;
    CHECK(refusal(folder.run({"links", "--devices", "gpu:2"})) ==
          "pp-profile: error: --devices: \"gpu:2\" is not of the form cpu:2x1 (devices x "
          "cores) or cuda:0,cuda:1\n");
    CHECK(refusal(folder.run({"links", "--devices", "cuda:0:1"}))
              .starts_with("pp-profile: error: device \"cuda:0:1\": \"0:1\" is not a device number; use cpu:K "
                           "(core K), "));
    CHECK(refusal(folder.run({"links", "--devices", "cuda:0,cuda:99"}))
              .starts_with("pp-profile: error: device \"cuda:"));
    CHECK(refusal(folder.run({"links", "--devices", "cpu:two"})) ==
          "pp-profile: error: --devices: \"two\" is not a whole number of at least 1; write for example 1x2\n");
    CHECK(refusal(folder.run({"links", "--devices", "cpu:1"})) ==
          "pp-profile: error: devices = 1: a link needs at least 2\n");
    CHECK(has(refusal(folder.run({"links", "--devices", "cpu:2x4000"})),
              "2 devices of 4000 cores need 8000 cores, this process may use "));
    CHECK(refusal(folder.run({"links", "--largest", "1KiB"})) ==
          "pp-profile: error: link sizes 1 KiB to 1 KiB: give at least a doubling\n");
    CHECK(has(refusal(folder.run({"links", "-o", "missing/cluster.json"})),
              "missing/cluster.json: cannot be written"));
  }
}
