// The files and streams of pp-plan: outputs that are inputs, pipes, limits, and names that would steer a
// terminal.
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_files_test {
namespace {

namespace fs = std::filesystem;
using pp::Json;
using pp::test::Outcome;

const std::vector<std::string> kRequest{"--devices",    "2",  "--bandwidth", "1e9",
                                        "--mini-batch", "16", "--stages",    "2"};

struct Folder : pp::test::TemporaryFolder {
  explicit Folder(pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0))) {
    pp::test::write_profile(path(), profile);
  }
  Outcome run(const std::vector<std::string>& arguments, const pp::test::Circumstances& what = {}) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path(), what);
  }
  Outcome make(const std::vector<std::string>& more, const pp::test::Circumstances& what = {}) const {
    std::vector<std::string> arguments{"profile.json"};
    arguments.insert(arguments.end(), kRequest.begin(), kRequest.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, what);
  }
  std::string file(const char* name) const { return pp::read_file(path() / name); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path()), {}));
  }
};

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-plan: error: " + message + "\n");
}

}  // namespace

TEST_SUITE("apps/plan_files") {
  TEST_CASE("an output that is an input is refused, by any of its names, and the input stays as it is") {
    const Folder folder;
    const std::string profile = folder.file("profile.json");
    refused(folder.make({"-o", "profile.json"}), "profile.json: is read and written; write to another file");
    refused(folder.make({"-o", "./profile.json"}),
            "./profile.json: is read and written; write to another file");
    fs::create_symlink("profile.json", folder.path() / "link.json");
    refused(folder.make({"-o", "link.json"}), "link.json: is read and written; write to another file");
    CHECK(folder.file("profile.json") == profile);
    REQUIRE(folder.make({"-o", "plan.json"}).code == 0);
    refused(folder.run({"simulate", "plan.json", "--trace", "plan.json"}),
            "plan.json: is read and written; write to another file");
  }

  TEST_CASE("two outputs of one name are refused; /dev/null takes both") {
    const Folder folder;
    REQUIRE(folder.make({"-o", "plan.json"}).code == 0);
    refused(folder.run({"show", "plan.json", "--svg", "x", "--trace", "x"}),
            "x: two outputs have this name; give each its own");
    refused(folder.run({"simulate", "--schedule", "gpipe", "--stages", "2", "--svg", "-", "--to-csv", "-"}),
            "two outputs want stdout; give one of them a file");
    CHECK(folder.run({"show", "plan.json", "--svg", "/dev/null", "--trace", "/dev/null"}).code == 0);
    CHECK(folder.files() == 2);
  }

  TEST_CASE("a pipe that nobody reads is refused at once") {
    const Folder folder;
    REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
    refused(folder.make({"-o", "pipe"}),
            "pipe: cannot be written: no process reads this pipe; start its reader first");
  }

  TEST_CASE("a file that may not grow is a failed run that leaves nothing behind") {
    const Folder folder;
    const std::string tool = pp::test::program("pp-plan");
    const Outcome outcome = pp::test::run_checked(
        "/bin/sh",
        {"-c", "ulimit -f 1; exec \"$0\" profile.json --devices 2 --bandwidth 1e9 --mini-batch 16 -o plan.json",
         tool},
        folder.path());
    CHECK(outcome.code == 1);
    CHECK(outcome.err == "pp-plan: error: plan.json: cannot be written: File too large\n");
    CHECK(folder.files() == 1);
  }

  TEST_CASE("a reader that has gone ends nothing and changes no exit code") {
    const Folder folder;
    // One micro-batch in two stages: a warning is due.
    CHECK(folder.make({"--micro-batches", "1", "-o", "plan.json"}, {.broken = 2}).code == 0);
    CHECK(folder.files() == 2);
    std::vector<std::vector<std::string>> calls{{"show", "plan.json"},
                                                {"schedules"},
                                                {"--help"},
                                                {"--version"},
                                                {"show", "plan.json", "--json"},
                                                {"show", "plan.json", "--svg", "-"}};
    for (const auto& arguments : calls) {
      CAPTURE(arguments[0]);
      const Outcome outcome = folder.run(arguments, {.broken = 1});
      CHECK(outcome.code == 0);
      CHECK(outcome.err == "");
    }
    CHECK(folder.make({"--memory-limit", "1kB", "--json"}, {.broken = 1}).code == 3);
    CHECK(folder.run({"show", "none.json"}, {.broken = 1}).code == 2);
  }

  TEST_CASE("a full or closed stdout is said") {
    const Folder folder;
    const std::string tool = pp::test::program("pp-plan");
    for (const char* redirection : {">/dev/full", ">&-"}) {
      if (redirection[1] == '/' && !fs::exists("/dev/full")) continue;
      for (const char* call : {" schedules ", " --help ", " --version --json "}) {
        CAPTURE(call);
        const Outcome outcome =
            pp::test::run_checked("/bin/sh", {"-c", tool + call + redirection}, folder.path());
        CHECK(outcome.code == 1);
        CHECK(outcome.err == "pp-plan: error: standard output cannot be written\n");
      }
    }
  }

  TEST_CASE("without stderr no file takes what is meant for it") {
    const Folder folder;
    const std::string call = pp::test::program("pp-plan") +
                             " profile.json --devices 2 --bandwidth 1e9 --mini-batch 16 --stages 2 "
                             "--micro-batches 1 -v -o ";
    REQUIRE(pp::test::run_checked("/bin/sh", {"-c", call + "plain.json 2>said"}, folder.path()).code == 0);
    CHECK(folder.file("said").find("warning") != std::string::npos);
    for (const char* closed : {"2>&-", "<&- >&- 2>&-"}) {
      const Outcome outcome =
          pp::test::run_checked("/bin/sh", {"-c", call + "closed.json " + closed}, folder.path());
      CHECK(outcome.code == (closed[0] == '2' ? 0 : 1));  // without stdout its result is lost
      Json plain = pp::parse_json(folder.file("plain.json"));
      Json written = pp::parse_json(folder.file("closed.json"));
      for (Json* plan : {&plain, &written}) plan->erase("context");
      CHECK(written == plain);
    }
  }

  TEST_CASE("a name forges no line of its own in messages and warnings") {
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
    const std::string evil = "x\npp-plan: warning: all is well\t";
    const std::string safe = R"(x\u000app-plan: warning: all is well\u0009)";
    const auto lines = [](const Outcome& outcome) { return std::ranges::count(outcome.err, '\n'); };
    const Folder folder(profile);
    const Outcome option = folder.make({"--schedule", evil});
    CHECK(lines(option) == 1);
    CHECK(option.err.find(safe) != std::string::npos);
    Json json = pp::parse_json(folder.file("profile.json"));
    json["layers"][0][evil] = 1;
    pp::write_file(folder.path() / "profile.json", json.dump());
    const Outcome key = folder.make({});
    CHECK(lines(key) == 1);
    CHECK(key.err.find(safe) != std::string::npos);
    // A warning that names the device.
    json["layers"][0].erase(evil);
    json["device"]["name"] = evil;
    json["estimated"] = {evil};
    pp::write_file(folder.path() / "profile.json", json.dump());
    const Outcome warning = folder.make({});
    CAPTURE(warning.err);
    CHECK(warning.err.find(safe) != std::string::npos);
    CHECK(warning.err.find("\npp-plan: warning: all is well") == std::string::npos);
  }

  TEST_CASE("control characters of names are shown escaped, in text, tables, messages and JSON") {
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
    const std::string evil =
        "a\033]0;owned\007\033[2J\n\xc2\x9b"
        "b";
    profile.model.name = evil;
    profile.model_hash = pp::model_hash(profile.model);
    const std::string safe = R"(a\u001b]0;owned\u0007\u001b[2J\u000a\u009bb)";
    const Folder folder(profile);
    const Outcome made = folder.make({"-o", "plan.json"});
    REQUIRE(made.code == 0);
    CHECK(made.out.starts_with(safe + ": "));
    for (const char* color : {"never", "always"}) {
      const Outcome shown = folder.run({"show", "plan.json", "--color", color});
      CHECK(shown.out.starts_with(safe + ": "));
      CHECK(shown.out.find("\033]") == std::string::npos);
      CHECK(shown.out.find("\033[2J") == std::string::npos);
    }
    CHECK(folder.run({"show", "plan.json", "--color", "always"}).out.find("\033[36m") != std::string::npos);
    const Json json = pp::parse_json(folder.run({"show", "plan.json", "--json"}).out);
    CHECK(json["model"]["name"].get<std::string>() == evil);
    const Outcome unknown = folder.make({"--schedule", "x\033[2Jy"});
    CHECK(unknown.code == 2);
    CHECK(unknown.err.find(R"(x\u001b[2Jy)") != std::string::npos);
    CHECK(unknown.err.find('\033') == std::string::npos);
  }

  TEST_CASE("colour sequences of names are shown escaped where the tools' own colours are on") {
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
    const std::string evil = "\033[31mred\033[36m", safe = R"(\u001b[31mred\u001b[36m)";
    profile.model.name = evil;
    profile.model_hash = pp::model_hash(profile.model);
    const Folder folder(profile);
    pp::Cluster cluster =
        pp::flat_cluster(2, pp::DeviceKind::cpu, pp::BytesPerSecond(1e9), pp::Seconds(0), pp::Bytes(0));
    cluster.devices[0].node = "a";
    cluster.devices[1].node = evil;
    pp::write_file(folder.path() / "cluster.json", pp::dump_json(pp::to_json(cluster)));
    const auto show = [&](const char* color) {
      return folder.run({"show", "plan.json", "--timeline", "--color", color}).out;
    };
    REQUIRE(folder
                .run({"profile.json", "--cluster", "cluster.json", "--mini-batch", "16", "--stages", "2",
                      "--schedule", "1f1b", "--replicas", "1-1", "-o", "plan.json"})
                .err == "");
    CHECK(show("always").starts_with(safe + ": "));
    CHECK(show("always").find(R"(  \u001b[31mred\u)") != std::string::npos);  // the column of devices
    CHECK(show("always").find("\033[31m") == std::string::npos);
    CHECK(show("always").find("red\033") == std::string::npos);
    CHECK(show("always").find("\033[36m<- bottleneck\033[0m") != std::string::npos);
    CHECK(show("always").find("\033[38;5;16;48;5;") != std::string::npos);  // an operation of the timeline
    CHECK(show("never").find('\033') == std::string::npos);
  }

  TEST_CASE("long names are cut in the middle, long messages too") {
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(4, 2.0));
    profile.model.name = std::string(500, 'n');
    profile.model_hash = pp::model_hash(profile.model);
    const Folder folder(profile);
    // 60 characters: 38 from the front, three dots, 19 from the end.
    CHECK(folder.make({}).out.starts_with(std::string(38, 'n') + "..." + std::string(19, 'n') + ": "));
    const Outcome unknown = folder.make({"--schedule", std::string(100'000, 's')});
    CHECK(unknown.code == 2);
    CHECK(unknown.err.size() < 4100);
    CHECK(unknown.err.find("sss...") != std::string::npos);
  }
}

}  // namespace plan_files_test
