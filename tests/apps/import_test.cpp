// pp-profile import: the files of other planners as they are.
#include <filesystem>
#include <fstream>

#include "libprofile/core/file.h"
#include "libprofile/core/profile.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace import_test {
namespace {

using pp::test::Outcome;

constexpr std::string_view kText =
    "node1 -- Linear -- forward_compute_time=1, backward_compute_time=2, activation_size=64, "
    "parameter_size=8\n";
constexpr std::string_view kPartitioning =
    R"({"maxSizePerFPGA": 64.0, "nodes": [{"id": 1, "fpgaLatency": 3, "size": 16}], "edges": []})";
constexpr std::string_view kPiper =
    R"({"nodes": [{"id": 1, "TMPCs": {"1": [{"timePerSample": 6, "parameterSize": 8, "memoryUsageA": 4,
    "memoryUsageB": 16}]}}], "edges": []})";

struct Folder : pp::test::TemporaryFolder {
  /// Imports `text` from a file of that name.
  Outcome import(const std::string& file, std::string_view text, std::vector<std::string> options = {}) const {
    std::ofstream(path() / file) << text;
    std::vector<std::string> arguments{"import", file, "-o", "profile.json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return pp::test::run_checked(pp::test::program("pp-profile"), arguments, path());
  }
  pp::Profile profile() const { return pp::parse_profile(pp::read_file(path() / "profile.json")); }
};

}  // namespace

TEST_SUITE("apps/import") {
  TEST_CASE("the format is recognised, times become seconds") {
    const Folder folder;
    REQUIRE(folder.import("graph.txt", kText).code == 0);
    CHECK(folder.profile().layers.front().points.front().backward.median.count() == 0.002);
    REQUIRE(folder.import("graph.json", kPartitioning).code == 0);
    CHECK(folder.profile().device.memory == pp::Bytes(64));
    REQUIRE(folder.import("piper.json", kPiper, {"--time-unit", "ms"}).code == 0);
    CHECK(folder.profile().layers.front().piper->plain.time.count() == 0.006);
  }

  TEST_CASE("the batch size is the option's, else that of the file's name, else 1") {
    const Folder folder;
    REQUIRE(folder.import("net-pbs-8.txt", kText).code == 0);
    CHECK(folder.profile().micro_batch_sizes == std::vector<std::int64_t>{8});
    REQUIRE(folder.import("net-pbs-16-simplified.txt", kText).code == 0);
    CHECK(folder.profile().micro_batch_sizes == std::vector<std::int64_t>{16});
    REQUIRE(folder.import("net-pbs-8.txt", kText, {"--batch-size", "4"}).code == 0);
    CHECK(folder.profile().micro_batch_sizes == std::vector<std::int64_t>{4});
    REQUIRE(folder.import("net.txt", kText).code == 0);
    CHECK(folder.profile().micro_batch_sizes == std::vector<std::int64_t>{1});
  }

  TEST_CASE("Piper's files need a unit of time, a wrong format is refused with the file's name") {
    const Folder folder;
    const Outcome unit = folder.import("piper.json", kPiper);
    CHECK(unit.code == 2);
    CHECK(unit.err.find("Piper's files do not say their unit of time; add --time-unit s or --time-unit ms") !=
          std::string::npos);
    const Outcome format = folder.import("graph.txt", kText, {"--format", "piper", "--time-unit", "s"});
    CHECK(format.code == 2);
    CHECK(format.err.find("graph.txt: ") != std::string::npos);
  }
}

}  // namespace import_test
