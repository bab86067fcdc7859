// Every command explains itself and ends its help with three examples.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/json_reader.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

#include "tests/support/doctest.h"

namespace {

pp::test::Outcome run(const std::string& tool, const std::vector<std::string>& arguments) {
  const pp::test::TemporaryFolder folder;
  return pp::test::run_program(pp::test::program(tool), arguments, folder.path());
}

/// The lines behind `Examples:` that call the tool.
int example_count(const std::string& help, const std::string& tool) {
  std::istringstream lines(help.substr(std::min(help.find("Examples:"), help.size())));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("  " + tool + " ") ? 1 : 0;
  return count;
}

}  // namespace

TEST_SUITE("apps/help") {
  TEST_CASE("each command's help ends with three examples") {
    const std::vector<std::pair<std::string, std::vector<std::string>>> tools{
        {"pp-profile", {"", "run", "links", "models", "show", "diff", "merge", "import"}},
        {"pp-plan",
         {"", "make", "compare", "show", "check", "simulate", "export", "schedules", "sweep", "study"}},
        {"pp-run", {"", "train", "infer", "check", "launch", "devices", "report"}}};
    for (const auto& [tool, commands] : tools) {
      for (const std::string& command : commands) {
        std::vector<std::string> arguments{"--help"};
        if (!command.empty()) arguments.insert(arguments.begin(), command);
        const pp::test::Outcome outcome = run(tool, arguments);
        const std::string called = tool + " " + command;
        CAPTURE(called);
        CHECK(outcome.code == 0);
        CHECK(example_count(outcome.out, tool) == 3);
      }
    }
  }

  TEST_CASE("a tool's help has the options of its default command, by group") {
    const std::string help = run("pp-run", {"--help"}).out;
    for (const char* part : {"Without a command, `pp-run train`:", "\nTraining:", "--learning-rate",
                             "--momentum", "\nLength:", "--epochs", "\nData:", "\nResults:"})
      CHECK(help.find(part) != std::string::npos);
    CHECK(run("pp-profile", {"--help"}).out.find("--micro-batch-sizes") != std::string::npos);
  }

  TEST_CASE("without arguments the help goes to stderr with exit 2") {
    for (const std::string tool : {"pp-profile", "pp-plan", "pp-run"}) {
      const pp::test::Outcome outcome = run(tool, {});
      CHECK(outcome.code == 2);
      CHECK(outcome.out.empty());
      CHECK(outcome.err.find("Examples:") != std::string::npos);
    }
  }

  TEST_CASE("--version names tool and version") {
    for (const std::string tool : {"pp-profile", "pp-plan", "pp-run"}) {
      const pp::test::Outcome outcome = run(tool, {"--version"});
      CHECK(outcome.code == 0);
      CHECK(outcome.out.starts_with(tool + " 0."));
      for (const auto& arguments : {std::vector<std::string>{"--version", "--json"}, {"--json", "--version"}}) {
        const pp::test::Outcome document = run(tool, arguments);
        CHECK(document.code == 0);
        const pp::Json json = pp::parse_json(document.out);
        CHECK(json["tool"] == tool);
        const std::string version = json["version"];
        CHECK(outcome.out.starts_with(tool + " " + version + "\ndocuments: checkpoint "));
        CHECK(json["documents"]["model"] == 2);
        CHECK(json.contains("parts") == (tool == "pp-run"));
      }
    }
  }
}
