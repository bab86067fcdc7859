// What a tool prints about itself: completion that shells accept and that offers what the tool takes, a manual
// page with every option, help within the terminal's width; and documents that come with the tools, by name.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace self_description_test {
namespace {

using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

Outcome shell(const std::string& command) {
  const pp::test::TemporaryFolder folder;
  pp::write_file(folder.path() / "my file.json", "{}");
  return pp::test::run_program(
      "/bin/bash", {"-c", "PATH=" + kPlan.parent_path().string() + ":$PATH; " + command}, folder.path());
}

/// What bash offers for the last of the words.
std::set<std::string> offered(const std::string& words) {
  const Outcome outcome =
      shell("set -eu; shopt -u progcomp || true; source <(pp-plan completion bash); COMP_WORDS=(" + words +
            "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _pp_plan || true; printf '%s\\n' \"${COMPREPLY[@]}\"");
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
  std::set<std::string> words_offered;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) words_offered.insert(line);
  return words_offered;
}

std::string out_of(const std::vector<std::string>& arguments) {
  const pp::test::TemporaryFolder folder;
  const Outcome outcome = pp::test::run_checked(kPlan, arguments, folder.path());
  CHECK(outcome.code == 0);
  return outcome.out;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::set<std::string> commands() {
  std::set<std::string> names;
  const std::string help = out_of({"--help"});
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line) && line.starts_with("  ");)
    names.insert(line.substr(2, line.find(' ', 2) - 2));
  CHECK(names.contains("make"));
  return names;
}

/// The long names that a command's help lists.
std::set<std::string> options_of(const std::string& command) {
  std::set<std::string> names;
  std::istringstream lines(out_of({command, "--help"}));
  const std::regex option("(--[a-z][a-z-]*)");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  -")) continue;
    const std::string left = line.substr(0, line.find("  ", 2));
    for (std::sregex_iterator i(left.begin(), left.end(), option), end; i != end; ++i) names.insert((*i)[1]);
  }
  return names;
}

}  // namespace

TEST_SUITE("apps/self_description") {
  TEST_CASE("bash completes commands, options, the names that an option takes, and files") {
    const std::set<std::string> all = commands();
    const std::set<std::string> first = offered("pp-plan ''");
    for (const std::string& command : all) CHECK(first.contains(command));
    CHECK(first.contains("my file.json"));
    CHECK(offered("pp-plan sho") == std::set<std::string>{"show"});
    CHECK(offered("pp-plan make profile.json --optimizer ''") ==
          std::set<std::string>{"sgd", "adam", "adamw", "rmsprop", "adagrad"});
    CHECK(offered("pp-plan profile.json --optimizer adam") == std::set<std::string>{"adam", "adamw"});
    CHECK(offered("pp-plan show my") == std::set<std::string>{"my file.json"});
    CHECK(offered("pp-plan profile.json --cluster my") == std::set<std::string>{"my file.json"});
    for (const std::string& command : all) {
      const std::set<std::string> options = options_of(command);
      std::set<std::string> completed = offered("pp-plan " + command + " --");
      CAPTURE(command);
      CHECK(options == completed);
    }
    CHECK(offered("pp-plan --mini") == std::set<std::string>{"--mini-batch"});
  }

  TEST_CASE("the completion of the other shells names the same, and they accept it where they are installed") {
    for (const std::string name : {"zsh", "fish"}) {
      CAPTURE(name);
      const std::string script = out_of({"completion", name});
      for (const std::string& command : commands()) CHECK(script.find(command) != std::string::npos);
      for (const std::string& option : options_of("make")) {
        CAPTURE(option);
        const std::string word = name == "zsh" ? option + "[" : " -l " + option.substr(2) + " ";
        CHECK(script.find(word) != std::string::npos);
      }
      const Outcome parsed = shell("command -v " + name + " > /dev/null || exit 0; pp-plan completion " + name +
                                   " > script; " + name + " -n script");
      CHECK(parsed.code == 0);
      CHECK(parsed.err.empty());
    }
    const pp::test::TemporaryFolder folder;
    CHECK(pp::test::run_checked(kPlan, {"completion", "fishy"}, folder.path()).err ==
          "pp-plan: error: shell: unknown name \"fishy\"; did you mean fish? Use one of bash, zsh, fish\n");
  }

  TEST_CASE("the manual page has every command and option, and groff finds nothing wrong in it") {
    const std::string page = out_of({"manual"});
    CHECK(page.starts_with(".TH PP\\-PLAN 1"));
    const auto roff = [](std::string text) { return std::regex_replace(text, std::regex("-"), "\\-"); };
    for (const std::string& command : commands()) {
      CHECK(page.find("\n.SH PP\\-PLAN " + upper(command)) != std::string::npos);
      for (const std::string& option : options_of(command))
        CHECK(page.find("\\fB" + roff(option)) != std::string::npos);
    }
    const Outcome printed = shell(
        "command -v groff > /dev/null || exit 0; pp-plan manual | groff -man -ww -Tutf8 > page || exit 1");
    CHECK(printed.code == 0);
    CHECK(printed.err.empty());
  }

  TEST_CASE("help is at most 100 columns wide where it goes to no terminal") {
    for (const std::string& command : commands()) {
      const std::string help = out_of({command, "--help"});
      std::istringstream lines(help.substr(0, help.find("Examples:")));
      for (std::string line; std::getline(lines, line);) {
        CAPTURE(line);
        CHECK(line.size() <= 100);
      }
    }
  }

  TEST_CASE("a cluster that comes with the tools is named without its path; a wrong name has the nearest one") {
    const std::filesystem::path profile = pp::test::test_data("peers/vgg16.json");
    const auto plan = [&](const std::string& cluster) {
      return pp::test::run_program(
          kPlan, {profile, "--cluster", cluster, "--nodes", "1", "--mini-batch", "8", "--json"},
          pp::test::repository("."));
    };
    const Outcome by_name = plan("dgx-a100"), by_path = plan("configs/clusters/dgx-a100.json");
    CHECK(by_name.code == by_path.code);
    CHECK(by_name.out == by_path.out);
    const Outcome wrong = plan("dgx-a10");
    CHECK(wrong.code == 2);
    CHECK(wrong.err.find(
              "--cluster: unknown name \"dgx-a10\"; did you mean dgx-a100? Use one of dgx-a100, dgx-b200, "
              "dgx-h100, ") != std::string::npos);
    CHECK(plan("no/such.json").err.find("no/such.json: cannot be read") != std::string::npos);
  }
}

}  // namespace self_description_test
