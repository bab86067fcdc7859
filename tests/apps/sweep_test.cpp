// pp-plan sweep: table, CSV, JSON and picture of a grid of plans; what it refuses.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"
#include "tests/support/xml.h"

#include "tests/support/doctest.h"

namespace sweep_test {
namespace {

using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  /// `sweep profile.json` with these arguments behind.
  Outcome sweep(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"sweep", "profile.json"});
    return pp::test::run_checked(kPlan, arguments, path());
  }
  /// Two and four devices, a mini-batch of 16, gpipe and 1f1b with 2, 4 and 32 micro-batches: 32 are refused.
  Outcome grid(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"--devices",    "2,4",       "--bandwidth",     "1e9",
                                       "--mini-batch", "16",        "--micro-batches", "2,4,32",
                                       "--schedules",  "gpipe,1f1b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return sweep(arguments);
  }
  std::string file(const std::string& name) const { return pp::read_file(path() / name); }
};

/// Records of fields, as RFC 4180 has them, with lines that end with `\n`.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records{{""}};
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool doubled = quoted && text.substr(i, 2) == "\"\"";
    if (text[i] == '"' && !doubled) {
      quoted = !quoted;
    } else if (text[i] == ',' && !quoted) {
      records.back().emplace_back();
    } else if (text[i] == '\n' && !quoted) {
      records.push_back({""});
    } else {
      records.back().back() += text[doubled ? i++ : i];
    }
  }
  records.pop_back();
  return records;
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

void refused(const Outcome& outcome, std::string_view message) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find(message) != std::string::npos);
}

}  // namespace

TEST_SUITE("apps/sweep") {
  TEST_CASE("the table has a line per combination, the reasons stand under it once") {
    const Outcome outcome = Folder().grid({});
    CAPTURE(outcome.out);
    REQUIRE(outcome.code == 0);
    CHECK(lines_of(outcome.out) == 2 + 2 * 2 * 3 + 2);
    CHECK(outcome.out.find("refused (1)") != std::string::npos);
    CHECK(outcome.out.ends_with("\n\n(1) micro_batches = 32 exceeds the mini-batch of 16 samples\n"));
  }

  TEST_CASE("CSV and JSON say the same") {
    const Folder folder;
    const Outcome outcome = folder.grid({"--csv", "sweep.csv", "--json"});
    REQUIRE(outcome.code == 0);
    const pp::Json json = pp::parse_json(outcome.out);
    const auto records = parse_csv(folder.file("sweep.csv"));
    REQUIRE(records.size() == 1 + 12);
    REQUIRE(json.size() == 12);
    for (std::size_t r = 1; r < records.size(); ++r) {
      REQUIRE(records[r].size() == records[0].size());
      for (std::size_t c = 0; c < records[r].size(); ++c) {
        const pp::Json& object = json[r - 1];
        const std::string& field = records[r][c];
        CAPTURE(field);
        if (field.empty()) {
          CHECK_FALSE(object.contains(records[0][c]));
        } else {
          const pp::Json& value = object.at(records[0][c]);
          CHECK(field == (value.is_string() ? value.get<std::string>() : value.dump()));
        }
      }
    }
    // 6 layers of 2 ms and 4 ms per 16 samples: 36 ms of work, shared by two devices that never wait.
    CHECK(json[1].at("micro_batches") == 4);
    CHECK(json[1].at("step_s").get<double>() >= 0.018);
  }

  TEST_CASE("the picture is SVG with a line per schedule and device count") {
    const Folder folder;
    REQUIRE(folder.grid({"--svg", "sweep.svg"}).code == 0);
    const std::string svg = folder.file("sweep.svg");
    CHECK(svg.starts_with("<svg "));
    CHECK(pp::test::xml_error(svg).empty());
    std::size_t paths = 0;
    for (std::size_t at = svg.find("<path "); at != std::string::npos; at = svg.find("<path ", at + 1)) ++paths;
    // Two schedules on two device counts, each with a line in three plots, a ring and a cross for 32; one more
    // ring in the legend.
    CHECK(paths == 4 * 5 + 1);
    CHECK(folder.grid({"--svg", "-"}).out == svg);
  }

  TEST_CASE("the bytes do not depend on the number of threads") {
    const Folder folder;
    const Outcome alone = folder.grid({"--threads", "1"});
    CHECK(alone.code == 0);
    CHECK(folder.grid({"--threads", "4"}).out == alone.out);
    const std::string csv = folder.grid({"--threads", "1", "--csv", "-"}).out;
    CHECK(lines_of(csv) == 13);
    CHECK(folder.grid({"--threads", "3", "--csv", "-"}).out == csv);
  }

  TEST_CASE("the machine may come from a file") {
    const Folder folder;
    const pp::Cluster cluster =
        pp::flat_cluster(3, pp::DeviceKind::cpu, pp::BytesPerSecond(1e9), pp::Seconds(0), pp::Bytes(1 << 30));
    pp::write_file(folder.path() / "cluster.json", pp::dump_json(pp::to_json(cluster)));
    const Outcome outcome = folder.sweep({"--cluster", "cluster.json", "--mini-batch", "16", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::Json json = pp::parse_json(outcome.out);
    REQUIRE(json.size() == 3 * 5);  // the default schedules and counts
    CHECK(json[0].at("devices") == 3);
  }

  TEST_CASE("exit 3 when no combination has a plan; the rows say why") {
    const Outcome outcome = Folder().grid({"--memory-limit", "1KiB"});
    CHECK(outcome.code == 3);
    CHECK(outcome.out.find("infeasible (1)") != std::string::npos);
    CHECK(outcome.err == "pp-plan: no combination has a plan\n");
  }

  TEST_CASE("exit 2 when every combination is refused") {
    const Outcome outcome = Folder().sweep({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "16",
                                            "--micro-batches", "32", "--schedules", "gpipe,1f1b"});
    CHECK(outcome.code == 2);
    CHECK(outcome.out.find("refused (1)") != std::string::npos);
    CHECK(outcome.err == "pp-plan: no combination has a plan\n");
  }

  TEST_CASE("auto is a schedule of the grid, never slower than the others") {
    const Outcome outcome =
        Folder().sweep({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "16", "--micro-batches", "4",
                        "--schedules", "auto,1f1b,zb-h1", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::Json json = pp::parse_json(outcome.out);
    REQUIRE(json.size() == 3);
    CHECK(json[0].at("schedule") == "auto");
    for (const pp::Json& row : json)
      CHECK(row.at("step_s").get<double>() >= json[0].at("step_s").get<double>());
  }

  TEST_CASE("fixed stages answer how the bubble falls with the number of micro-batches") {
    // Four equal stages, 4 layers of 2 ms + 4 ms per 16 samples, one micro-batch after the other: the bubble of
    // gpipe and 1f1b is (K - 1)/(M + K - 1) where messages and updates cost next to nothing: 3/4, 3/5, 3/7,
    // 3/11.
    const Folder folder;
    pp::test::write_profile(folder.path(), pp::test::sample_profile(std::vector<double>(4, 2.0)));
    const std::vector<std::string> request{
        "--devices",  "4",       "--bandwidth",     "1e12",    "--mini-batch", "16",         "--stages", "4",
        "--replicas", "1-1-1-1", "--micro-batches", "1,2,4,8", "--schedules",  "gpipe,1f1b", "--csv",    "-"};
    const Outcome outcome = folder.sweep(request);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const auto records = parse_csv(outcome.out);
    REQUIRE(records.size() == 1 + 8);
    const auto column = [&](std::string_view name) {
      return static_cast<std::size_t>(std::ranges::find(records[0], name) - records[0].begin());
    };
    for (std::size_t r = 1; r < records.size(); ++r) {
      const double micro_batches = std::stod(records[r][column("micro_batches")]);
      CHECK(records[r][column("replicas")] == "1-1-1-1");
      CHECK(std::stod(records[r][column("bubble_fraction")]) ==
            doctest::Approx(3 / (micro_batches + 3)).epsilon(0.02));
    }
    std::vector<std::string> drawn = request;
    drawn[drawn.size() - 2] = "--svg";
    CHECK(folder.sweep(drawn).out.find(">bubble</text>") != std::string::npos);
  }

  TEST_CASE("a strategy cuts every combination, and another one than asked for is refused") {
    const Outcome outcome =
        Folder().sweep({"--devices", "2", "--bandwidth", "1e9", "--mini-batch", "16", "--micro-batches", "2,4",
                        "--schedules", "1f1b", "--strategy", "data-parallel", "--json"});
    REQUIRE(outcome.code == 0);
    for (const pp::Json& row : pp::parse_json(outcome.out)) CHECK(row.at("replicas") == "2");
    refused(Folder().grid({"--strategy", "fastest"}), "--strategy: unknown name \"fastest\"; use one of auto");
    refused(Folder().grid({"--replicas", "1-0"}), "--replicas: \"0\" is not a whole number");
  }

  TEST_CASE("what is wrong with the grid is found before the work") {
    const Folder folder;
    refused(folder.grid({"--schedules", "2f2b"}), "schedule: unknown name \"2f2b\"; use one of");
    refused(folder.grid({"--csv", "-", "--svg", "-"}), "two outputs want stdout");
    refused(folder.grid({"--csv", "missing/sweep.csv"}), "missing/sweep.csv: cannot be written");
    refused(folder.grid({"--cluster", "cluster.json"}), "--cluster");
    refused(folder.sweep({"--devices", "2,x", "--mini-batch", "16"}), "--devices: \"x\" is not a whole number");
    refused(folder.sweep({"--devices", "1,2", "--mini-batch", "16"}), "--devices 2 needs --bandwidth");
    refused(folder.sweep({"--mini-batch", "16"}), "no machine given");
    refused(folder.sweep({"--devices", "1"}), "add --mini-batch N");
  }

  TEST_CASE("a combination is what make plans with the same options") {
    const Folder folder;
    const std::vector<std::vector<std::string>> shapes{
        {"--cuts", "1,4", "--replicas", "1-1-1"},
        {"--schedule", "interleaved", "--chunks", "2", "--stages", "2"},
        {"--schedule", "1f1b", "--window", "win", "--stages", "3"},
        {"--schedule", "1f1b", "--max-stages", "2", "--tied", "stage"}};
    for (std::vector<std::string> arguments : shapes) {
      CAPTURE(arguments[1]);
      const std::vector<std::string> common{"--devices",       "4", "--bandwidth", "1e9", "--mini-batch", "16",
                                            "--micro-batches", "4", "--json"};
      if (std::ranges::find(arguments, "--schedule") == arguments.end())
        arguments.insert(arguments.end(), {"--schedule", "1f1b"});
      arguments.insert(arguments.end(), common.begin(), common.end());
      const Outcome swept = folder.sweep(arguments);
      arguments.insert(arguments.begin(), {"make", "profile.json"});
      const Outcome made = pp::test::run_checked(kPlan, arguments, folder.path());
      REQUIRE(swept.code == 0);
      REQUIRE(made.code == 0);
      const pp::Json row = pp::parse_json(swept.out).at(0), plan = pp::parse_json(made.out);
      CHECK(row.at("schedule") == plan.at("schedule").at("name"));
      CHECK(row.at("step_s") == plan.at("predicted").at("step_s"));
    }
  }
}

}  // namespace sweep_test
