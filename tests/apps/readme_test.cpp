// README.md and the tools' pages: the planner's commands run as they are written. `scripts/check readme` runs
// all of them, the training included.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"
#include "tests/support/process.h"

#include "tests/support/doctest.h"

namespace readme_test {
namespace {

const std::filesystem::path kRoot = pp::test::repository("");

/// Every README.md of the project's own folders.
std::vector<std::filesystem::path> pages() {
  std::vector<std::filesystem::path> found{kRoot / "README.md"};
  for (const char* room : {"apps", "configs", "libplan", "libprofile", "librun", "scripts", "tests"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / room)) {
      if (entry.path().filename() == "README.md") found.push_back(entry.path());
    }
  }
  return found;
}

/// The lines `$ pp-plan ...` of the code blocks that `scripts/check readme` runs, but those of a profile that
/// only pp-profile makes.
std::vector<std::string> planner_commands() {
  std::vector<std::string> commands;
  for (const char* page :
       {"README.md", "apps/profile/README.md", "apps/plan/README.md", "apps/run/README.md"}) {
    std::istringstream lines(pp::read_file(kRoot / page));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("$ pp-plan ") && line.find(" llama") == std::string::npos)
        commands.push_back(line.substr(2));
    }
  }
  return commands;
}

/// Of a line of UTF-8.
std::ptrdiff_t columns(const std::string& line) {
  return std::ranges::count_if(line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// A folder in which profile.json and cluster.json were made before, as the README's first step does.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0)));
    const pp::Cluster cluster = pp::flat_cluster(2, pp::DeviceKind::cpu, pp::BytesPerSecond(1e9),
                                                 pp::Seconds(1e-5), pp::Bytes(1 << 30));
    pp::write_file(path() / "cluster.json", pp::dump_json(pp::to_json(cluster)));
    std::filesystem::create_directory_symlink(std::filesystem::canonical(kRoot / "configs"),
                                              path() / "configs");
  }
  pp::test::Outcome shell(const std::string& command) const {
    return pp::test::run_program("/bin/sh", {"-c", "PATH=" + pp::test::program() + ":$PATH; " + command},
                                 path());
  }
};

}  // namespace

TEST_SUITE("apps/readme") {
  TEST_CASE("the planner's commands run as they are written") {
    const Folder folder;
    const std::vector<std::string> commands = planner_commands();
    CHECK(commands.size() >= 4);
    for (const std::string& command : commands) {
      CAPTURE(command);
      const pp::test::Outcome outcome = folder.shell(command);
      CAPTURE(outcome.err);
      CHECK(outcome.code == 0);
    }
  }

  TEST_CASE("prose is at most 100 columns wide") {
    for (const std::filesystem::path& page : pages()) {
      CAPTURE(page.string());
      std::istringstream lines(pp::read_file(page));
      bool code = false;
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("```")) code = !code;
        CAPTURE(line);
        if (!code && !line.starts_with('|')) CHECK(columns(line) <= 100);
      }
    }
  }

  TEST_CASE("the reference of schedules has a row of ten cells for each schedule") {
    const Folder folder;
    const std::string table = folder.shell("pp-plan schedules --markdown").out;
    const nlohmann::json schedules = nlohmann::json::parse(folder.shell("pp-plan schedules --json").out);
    CHECK(schedules.size() > 30);
    for (const nlohmann::json& row : schedules) {
      const std::string name = row["name"];
      CAPTURE(name);
      const std::size_t begin = table.find("\n| `" + name + "` |");
      REQUIRE(begin != std::string::npos);
      const std::string line = table.substr(begin + 1, table.find('\n', begin + 1) - begin - 1);
      CHECK(std::ranges::count(line, '|') == 11);
    }
  }

  TEST_CASE("the first page is short") {
    const std::string text = pp::read_file(kRoot / "README.md");
    CHECK(std::ranges::count(text, '\n') <= 200);
  }

  TEST_CASE("what a page links to is there") {
    for (const std::filesystem::path& page : pages()) {
      CAPTURE(page.string());
      const std::string text = pp::read_file(page);
      for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
        const std::string target = text.substr(at + 2, text.find_first_of(")#", at) - at - 2);
        CAPTURE(target);
        if (!target.empty() && !target.starts_with("http"))
          CHECK(std::filesystem::exists(page.parent_path() / target));
      }
    }
  }
}

}  // namespace readme_test
