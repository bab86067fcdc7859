// What pp-run says while it trains (the lines of --metrics, the line on a terminal) and afterwards (pp-run
// report).
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"
#include "tests/support/skip.h"

namespace {

using pp::Json;
using pp::test::Outcome;
using pp::test::RunFolder;

std::vector<Json> lines_of(const std::filesystem::path& file) {
  std::istringstream text(pp::read_file(file));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(pp::parse_json(line));
  return lines;
}

}  // namespace

TEST_SUITE("apps/run_progress") {
  TEST_CASE("--metrics has a line for the run, for every step and every epoch, with the report's numbers") {
    const RunFolder folder;
    const Outcome outcome = folder.run({"plan.json", "--epochs", "2", "--clip-norm", "1", "--warmup-steps", "4",
                                        "--metrics", "m.jsonl", "-o", "report.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json report = pp::parse_json(pp::read_file(folder.path() / "report.json"));
    const std::vector<Json> lines = lines_of(folder.path() / "m.jsonl");
    REQUIRE(lines.size() == 1 + 2 * 9);  // 64 samples in mini-batches of 8: 8 steps in an epoch
    CHECK(lines[0]["format"] == "pp.metrics");
    CHECK(lines[0]["plan_hash"] == report["plan_hash"]);
    CHECK(lines[0]["settings"] == report["settings"]);
    CHECK(lines[0]["steps"] == 16);
    std::vector<double> losses;
    for (const Json& line : lines) {
      if (!line.contains("loss")) continue;
      losses.push_back(line["loss"]);
      CHECK(line["step"] == losses.size());
      CHECK(line["gradient_norm"] > 0);
    }
    CHECK(report["step_losses"] == losses);
    CHECK(lines[1]["learning_rate"] == 0.0025);  // 0.01 * 1/4
    for (const std::size_t epoch : {0u, 1u}) {
      const Json& line = lines[9 * (epoch + 1)];
      CHECK(line["evaluation"] == epoch);
      CHECK(line["step"] == 8 * (epoch + 1));
      for (const char* key : {"train_loss", "test_loss", "test_accuracy", "evaluation_s"})
        CHECK(line[key] == report["epochs"][epoch][key]);
    }
  }

  TEST_CASE("a killed run keeps its lines, all of them whole; the next one replaces them") {
    const RunFolder folder;
    const Outcome outcome = folder.run({"plan.json", "--steps", "100000000", "--metrics", "m.jsonl"},
                                       {.signal = SIGKILL, .signal_when = "epoch 1"});
    CHECK(outcome.code == 128 + SIGKILL);
    CHECK(lines_of(folder.path() / "m.jsonl").size() > 17);
    REQUIRE(folder.run({"plan.json", "--steps", "3", "--metrics", "m.jsonl"}).code == 0);
    CHECK(lines_of(folder.path() / "m.jsonl").size() == 4 + 1);  // the epoch ends with the run
  }

  TEST_CASE("a resumed run adds its lines, with one that says where it began") {
    const RunFolder folder;
    REQUIRE(
        folder.run({"plan.json", "--steps", "4", "--no-evaluate", "--checkpoint", "ck", "--metrics", "m.jsonl"})
            .code == 0);
    const Outcome outcome = folder.run({"plan.json", "--steps", "6", "--no-evaluate", "--resume", "ck",
                                        "--metrics", "m.jsonl", "-o", "r.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const std::vector<Json> lines = lines_of(folder.path() / "m.jsonl");
    REQUIRE(lines.size() >= 8);  // 1 and 4, 1 and 2, and epochs that are done
    CHECK(lines[0]["first_step"] == 0);
    const auto second = std::ranges::find_if(lines.begin() + 1, lines.end(),
                                             [](const Json& line) { return line.contains("format"); });
    REQUIRE(second != lines.end());
    CHECK((*second)["first_step"] == 4);
    CHECK((*(second + 1))["step"] == 5);
    CHECK(pp::parse_json(pp::read_file(folder.path() / "r.json"))["last_steps"]["first_step"] == 5);
  }

  TEST_CASE("a resumed run adds its lines to no file of another kind, which stays as it is") {
    const RunFolder folder;
    REQUIRE(folder.run({"plan.json", "--steps", "4", "--no-evaluate", "--checkpoint", "ck"}).code == 0);
    const std::string text = "a diary\nof two lines, the second without an end";
    pp::write_file(folder.path() / "diary", text);
    const auto outcome = folder.run({"plan.json", "--steps", "8", "--resume", "ck", "--metrics", "diary"});
    CHECK(outcome.code == 2);
    CHECK(outcome.err ==
          "pp-run: error: diary: is no file of --metrics, to which a resumed training adds its lines; name "
          "another\n");
    CHECK(pp::read_file(folder.path() / "diary") == text);
  }

  TEST_CASE("a metrics file that cannot be made is refused before the run, one that fills up is a warning") {
    const RunFolder folder;
    const Outcome nowhere = folder.run({"plan.json", "--steps", "3", "--metrics", "no/m.jsonl"});
    CHECK(nowhere.code == 2);
    CHECK(nowhere.err == "pp-run: error: no/m.jsonl: cannot be written: No such file or directory\n");
    const Outcome twice = folder.run({"plan.json", "--steps", "3", "--metrics", "plan.json"});
    CHECK(twice.code == 2);
    CHECK(twice.err == "pp-run: error: plan.json: is read and written; write to another file\n");
    CHECK(folder.files() == 1);
    const Outcome full =
        folder.run({"plan.json", "--steps", "3", "--metrics", "/dev/full", "-o", "report.json"});
    CHECK(full.code == 0);
    CHECK(full.err.find("pp-run: warning: /dev/full: cannot be written: No space left on device; the training "
                        "goes on without it\n") != std::string::npos);
    CHECK(full.err.find("/dev/full") == full.err.rfind("/dev/full"));
  }

  TEST_CASE("a refused run leaves the metrics of the one before as they were") {
    const RunFolder folder;
    pp::write_file(folder.path() / "m.jsonl", "{}\n");
    CHECK(folder.run({"plan.json", "--steps", "3", "--lr-schedule", "nothing", "--metrics", "m.jsonl"}).code ==
          2);
    CHECK(pp::read_file(folder.path() / "m.jsonl") == "{}\n");
  }

  TEST_CASE("--metrics - is all that stdout has, line by line") {
    const RunFolder folder;
    const Outcome outcome = folder.run({"plan.json", "--steps", "3", "--no-evaluate", "--metrics", "-"});
    CHECK(outcome.code == 0);
    CHECK(outcome.out.starts_with(R"({"format":"pp.metrics")"));
    CHECK(std::ranges::count(outcome.out, '\n') == 5);
  }

  TEST_CASE("a terminal shows step, loss, speed, time left, bubble and memory, as much as it has room for") {
    if (!pp::test::has_terminals()) return pp::test::skip("no pseudo terminals (/dev/pts)");
    const RunFolder folder;
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

  TEST_CASE("pp-run report prints what the run printed, or writes a page") {
    const RunFolder folder;
    const Outcome run = folder.run({"plan.json", "--epochs", "2", "-o", "report.json"});
    REQUIRE(run.code == 0);
    const auto report = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), "report");
      return pp::test::run_checked(pp::test::program("pp-run"), arguments, folder.path());
    };
    CHECK(report({"report.json"}).out == run.out);
    CHECK(run.out.find("operation") != std::string::npos);
    CHECK(report({"report.json", "--json"}).out ==
          pp::dump_json_compact(pp::parse_json(pp::read_file(folder.path() / "report.json"))) + "\n");

    const Outcome page = report({"report.json", "--html", "report.html"});
    CHECK(page.code == 0);
    CHECK(page.out.empty());
    const std::string html = pp::read_file(folder.path() / "report.html");
    CHECK(html.starts_with("<!DOCTYPE html>"));
    CHECK(html.find("\"name\":\"measured, steps 15 to 16\"") != std::string::npos);
    CHECK(report({"report.json", "--html", "-"}).out == html);

    std::filesystem::copy(folder.path() / "report.json", folder.path() / "again.json");
    CHECK(report({"report.json", "again.json"}).out == "report.json\n" + run.out + "\nagain.json\n" + run.out);
    const std::string both = report({"report.json", "again.json", "--html", "-"}).out;
    CHECK(both.find("\"name\":\"again.json, measured, steps 15 to 16\"") != std::string::npos);
    CHECK(report({"report.json", "again.json", "--json"}).err ==
          "pp-run: error: --json prints one report, but 2 are given; call pp-run report for each\n");

    const Outcome same = report({"report.json", "--html", "report.json"});
    CHECK(same.code == 2);
    CHECK(same.err == "pp-run: error: report.json: is read and written; write to another file\n");
    const Outcome plan = report({"plan.json"});
    CHECK(plan.code == 2);
    CHECK(plan.err.starts_with("pp-run: error: plan.json: "));
  }
}
