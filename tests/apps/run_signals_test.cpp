// Signals that pp-run must survive or obey.
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_folder.h"

#include "tests/support/doctest.h"

namespace run_signals_test {
namespace {

using pp::test::Outcome;
using Folder = pp::test::RunFolder;

/// Long enough to be ended by a signal only.
const std::vector<std::string> kLong{"plan.json", "--steps", "100000000", "--no-evaluate", "-o", "report.json"};

}  // namespace

TEST_SUITE("apps/run_signals") {
  TEST_CASE(
      "an interruption and a closed terminal end the run after its step: the report is written, exit 130") {
    const Folder folder;
    for (const int signal : {SIGHUP, SIGTERM, SIGINT}) {
      const Outcome outcome = folder.run(kLong, {.signal = signal, .signal_when = "training"});
      CHECK(outcome.code == 130);
      CHECK(pp::parse_json(pp::read_file(folder.path() / "report.json"))["exit_reason"] == "interrupted");
      CHECK(folder.files() == 2);
    }
  }

  TEST_CASE("a killed run leaves nothing half-written behind") {
    const Folder folder;
    const Outcome outcome = folder.run(kLong, {.signal = SIGKILL, .signal_when = "training"});
    CHECK(outcome.code == 128 + SIGKILL);
    CHECK(folder.files() == 1);
  }

  TEST_CASE("an interrupted inference ends with 130 and writes no outputs") {
    const Folder folder;
    const Outcome outcome =
        pp::test::run_checked(Folder::tool(),
                              {"infer", "plan.json", "--data", "synthetic", "--synthetic-samples", "2000000",
                               "--draw-weights", "--micro-batch-size", "1", "-o", "outputs.safetensors"},
                              folder.path(), {.signal = SIGINT, .signal_when = "inference"});
    CHECK(outcome.code == 130);
    CHECK(outcome.err.find("interrupted: outputs.safetensors is not written") != std::string::npos);
    CHECK(folder.files() == 1);
  }
}

}  // namespace run_signals_test
