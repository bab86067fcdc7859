// What stands on the command line: unknown names come first, with the nearest known one; `-` is standard input;
// numbers read as numbers.
#include <filesystem>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace arguments_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(4, 2.0))); }
  Outcome plan(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(kPlan, arguments, path());
  }
  /// Through a shell, where `pp-plan` is the tool.
  Outcome shell(const std::string& command) const {
    return pp::test::run_checked("/bin/sh",
                                 {"-c", "PATH=" + kPlan.parent_path().string() + ":$PATH; " + command}, path());
  }
};

/// What the tool says on stderr to these arguments, with exit 2 and nothing on stdout.
std::string error(const std::vector<std::string>& arguments) {
  const Outcome outcome = Folder().plan(arguments);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  return outcome.err;
}

}  // namespace

TEST_SUITE("apps/arguments") {
  TEST_CASE("an unknown option is named before anything that is missing, with the nearest one") {
    CHECK(error({"--mini-bach", "64"}) ==
          "pp-plan: error: unknown option --mini-bach; did you mean --mini-batch? See pp-plan make --help\n");
    CHECK(error({"profile.json", "--devcies=2"}) ==
          "pp-plan: error: unknown option --devcies; did you mean --devices? See pp-plan make --help\n");
    CHECK(error({"profile.json", "--micro-batch", "4"}) ==  // the beginning of two options: the nearer one
          "pp-plan: error: unknown option --micro-batch; did you mean --micro-batches? See pp-plan make "
          "--help\n");
    CHECK(error({"profile.json", "--quantum"}) ==
          "pp-plan: error: unknown option --quantum; see pp-plan make --help\n");
    CHECK(error({"show", "-svg", "step.svg"}) ==
          "pp-plan: error: unknown option -svg; did you mean --svg? See pp-plan show --help\n");
  }

  TEST_CASE("an option that only pp-plan has is known to pp-run as the plan's") {
    const TemporaryFolder folder;
    const Outcome outcome = pp::test::run_checked(pp::test::program("pp-run"),
                                                  {"plan.json", "--optimizer", "adamw"}, folder.path());
    CHECK(outcome.code == 2);
    CHECK(outcome.err ==
          "pp-run: error: --optimizer belongs to the plan: make it with pp-plan --optimizer, then run what it "
          "writes\n");
  }

  TEST_CASE("an option's value is not taken for an option") {
    CHECK(error({"profile.json", "--mini-batch", "-4"}).find("--mini-batch: \"-4\" is not") !=
          std::string::npos);
    CHECK(error({"profile.json", "-o", "-x", "--devices", "1"}).find("unknown") == std::string::npos);
  }

  TEST_CASE("a mistyped command is named with the nearest one") {
    CHECK(error({"swep", "profile.json", "--devices", "2"}) ==
          "pp-plan: error: unknown command swep; did you mean sweep? The commands are make, compare, show, "
          "check, simulate, export, schedules, sweep, study, completion, manual\n");
    CHECK(error({"shwo"}).find("unknown command shwo; did you mean show?") != std::string::npos);
    CHECK(error({"evaluate", "profile.json"})
              .starts_with("pp-plan: error: unknown command evaluate; the commands"));
    CHECK(error({"check", "plan.json", "other.json"}) ==
          "pp-plan: error: \"other.json\" is one argument too many; see pp-plan check --help\n");
  }

  TEST_CASE("a file that is named like a command nearly is a file") {
    const Folder folder;
    std::filesystem::copy(folder.path() / "profile.json", folder.path() / "shwo");
    CHECK(folder.plan({"shwo", "--devices", "1", "--mini-batch", "4"}).code == 0);
  }

  TEST_CASE("- is standard input wherever a document is read") {
    const Folder folder;
    const std::string request = " --devices 2 --bandwidth 1e9 --mini-batch 16 -q ";
    const Outcome made =
        folder.shell("pp-plan - -o -" + request + "< profile.json > plan.json; pp-plan show - < plan.json");
    CAPTURE(made.err);
    CHECK(made.code == 0);
    CHECK(made.out.find("lower bound") != std::string::npos);
    CHECK(folder.shell("pp-plan check - < plan.json").out.starts_with("standard input: valid ("));
    CHECK(folder.shell("pp-plan check plan.json --profile - < profile.json").code == 0);
    CHECK(folder.shell("pp-plan sweep -" + request + "--micro-batches 2 < profile.json").code == 0);
    const std::string csv = "pp-plan simulate --schedule gpipe --stages 2 --micro-batches 2 --to-csv -";
    CHECK(folder.shell(csv + " | pp-plan simulate --csv -").code == 0);
  }

  TEST_CASE("a byte order mark in front of a document is no part of it, UTF-16 is refused") {
    const Folder folder;
    CHECK(
        folder.shell("(printf '\\357\\273\\277'; echo '0F0,0B0') | pp-plan simulate --csv - --to-csv -").out ==
        "0F0,0B0\n");
    CHECK(folder.shell("(printf '\\357\\273\\277'; cat profile.json) | pp-plan - --devices 1 --mini-batch 4")
              .code == 0);
    const Outcome wide = folder.shell("printf '\\377\\3760\\0F\\0000\\0' | pp-plan simulate --csv -");
    CHECK(wide.code == 2);
    CHECK(wide.err == "pp-plan: error: standard input: is text in UTF-16; save it as UTF-8\n");
  }

  TEST_CASE("what is wrong with standard input is said of standard input") {
    const Folder folder;
    CHECK(folder.shell("echo '{' | pp-plan show -").err.starts_with("pp-plan: error: standard input: "));
    const Outcome empty = folder.plan({"show", "-"});
    CHECK(empty.code == 2);
    CHECK(empty.err ==
          "pp-plan: error: standard input is empty; it holds one document, for one `-` of the command\n");
  }

  TEST_CASE("a number outside its range is told the range in a few digits") {
    CHECK(error({"show", "plan.json", "--width", "5"}) ==
          "pp-plan: error: --width: \"5\" is not a number from 20 to 10000; see pp-plan show --help\n");
  }

  TEST_CASE("the tool's help shows the options of its default command, by group") {
    const Outcome help = Folder().plan({"--help"});
    for (const char* part : {"Without a command, `pp-plan make`:", "--mini-batch", "\nSearch:", "\nMachine:"})
      CHECK(help.out.find(part) != std::string::npos);
  }

  TEST_CASE("one thing is not called several") {
    const Folder folder;
    const Outcome one =
        folder.plan({"profile.json", "--devices", "1", "--mini-batch", "4", "--micro-batches", "1"});
    CHECK(one.out.find(", 1 stage (no pipeline), replicas 1, mini-batch 4 = 1 micro-batch\n") !=
          std::string::npos);
    const Outcome two = folder.plan({"profile.json", "--devices", "2", "--bandwidth", "1e9", "--mini-batch",
                                     "4", "--micro-batches", "2", "--schedule", "1f1b", "--stages", "2"});
    CHECK(two.out.find(", 2 stages, replicas 1-1, mini-batch 4 = 2 micro-batches\n") != std::string::npos);
  }
}

}  // namespace arguments_test
