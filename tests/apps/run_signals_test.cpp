// Signals that pp-run must survive or obey, and the line on a terminal.
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_folder.h"

#include "tests/support/doctest.h"
#include "tests/support/skip.h"

namespace run_signals_test {
namespace {

using pp::Json;
using pp::test::Outcome;
using Folder = pp::test::RunFolder;

/// Long enough to be ended by a signal only.
const std::vector<std::string> kLong{"plan.json", "--steps", "100000000", "--no-evaluate", "-o", "report.json"};

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::istringstream text(pp::read_file(file));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(pp::parse_json(line));
  return lines;
}

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
                               "--random-weights", "--micro-batch-size", "1", "-o", "outputs.safetensors"},
                              folder.path(), {.signal = SIGINT, .signal_when = "inference"});
    CHECK(outcome.code == 130);
    CHECK(outcome.err.find("interrupted: outputs.safetensors is not written") != std::string::npos);
    CHECK(folder.files() == 1);
  }

  TEST_CASE("a killed run keeps its lines, each whole; the next one replaces them") {
    const Folder folder;
    const Outcome outcome = folder.run({"plan.json", "--steps", "100000000", "--metrics", "m.jsonl"},
                                       {.signal = SIGKILL, .signal_when = "epoch 1"});
    CHECK(outcome.code == 128 + SIGKILL);
    CHECK(lines_of(folder.path() / "m.jsonl").size() > 17);
    REQUIRE(folder.run({"plan.json", "--steps", "3", "--metrics", "m.jsonl"}).code == 0);
    CHECK(lines_of(folder.path() / "m.jsonl").size() == 4 + 1);  // the epoch ends with the run
  }

  TEST_CASE("a terminal shows step, loss, speed, time left, bubble and memory, as much as it has room for") {
    if (!pp::test::has_terminals()) return pp::test::skip("no pseudo terminals (/dev/pts)");
    const Folder folder;
    const std::vector<std::string> arguments{"plan.json", "--steps", "20000", "--no-evaluate"};
    const Outcome wide =
        folder.run(arguments, {.signal = SIGTERM, .signal_when = " left, bubble ", .columns = 140});
    CHECK(wide.code == 130);
    const std::size_t left = wide.err.find(" left, bubble ");
    const std::string line = wide.err.substr(wide.err.rfind("training", left), 140);
    for (const char* part :
         {"training [", " %  step ", "/20000, loss ", " samples/s, ", " left, bubble ", " KiB"})
      CHECK(line.find(part) != std::string::npos);
    const Outcome narrow = folder.run({"plan.json", "--steps", "200", "--no-evaluate"}, {.columns = 50});
    CHECK(narrow.code == 0);
    std::istringstream lines(narrow.err);
    for (std::string part; std::getline(lines, part, '\r');) {
      const std::string shown = part.starts_with("\033[K") ? part.substr(3) : part;
      if (shown.starts_with("training")) CHECK(shown.size() < 50);
      CHECK(shown.find("KiB") == std::string::npos);
    }
  }
}

}  // namespace run_signals_test
