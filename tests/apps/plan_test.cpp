// pp-plan on a profile of round numbers: plans, their files and their text.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

/// Six layers, 2 ms each per 16 samples: forward + backward 6 ms a layer.
struct Folder : TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  Outcome plan(std::vector<std::string> arguments) const {
    return pp::test::run_checked(kPlan, arguments, path());
  }
};

const std::vector<std::string> kTwoStages{
    "profile.json",    "--devices", "2",          "--bandwidth", "1e12", "--mini-batch", "64", "--stages", "2",
    "--micro-batches", "4",         "--schedule", "1f1b",        "-o",   "plan.json"};

}  // namespace

TEST_SUITE("apps/plan") {
  TEST_CASE("two equal stages of an even chain take (M+1)/M of half the work") {
    const Folder folder;
    const Outcome outcome = folder.plan(kTwoStages);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::plan::Plan plan = pp::plan::parse_plan(pp::read_file(folder.path() / "plan.json"));
    CHECK(pp::plan::stages_text(plan) == "3|3");
    CHECK(pp::plan::replicas_text(plan) == "1-1");
    // Per micro-batch of 16 a stage takes 3 * 6 = 18 ms; (M + K - 1) = 5 of them; the links are practically
    // free.
    CHECK(plan.predicted.makespan.count() == doctest::Approx(5 * 0.018).epsilon(1e-3));
    CHECK(plan.predicted.bubble_fraction == doctest::Approx(0.2).epsilon(1e-3));
    CHECK(outcome.out.find("<- bottleneck") != std::string::npos);
    CHECK(outcome.out.find("lower bound") != std::string::npos);
  }

  TEST_CASE("the same request writes the same bytes") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    const std::string first = pp::read_file(folder.path() / "plan.json");
    REQUIRE(folder.plan(kTwoStages).code == 0);
    CHECK(pp::read_file(folder.path() / "plan.json") == first);
  }

  TEST_CASE("a plan that was written is valid, shows its timeline and simulates to its own makespan") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    CHECK(folder.plan({"check", "plan.json", "--profile", "profile.json"}).code == 0);
    const Outcome shown = folder.plan({"show", "plan.json", "--timeline", "--programs"});
    CHECK(shown.code == 0);
    CHECK(shown.out.find("worker 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 U1") != std::string::npos);
    const Outcome simulated = folder.plan({"simulate", "plan.json", "--json"});
    REQUIRE(simulated.code == 0);
    const pp::plan::Plan plan = pp::plan::parse_plan(pp::read_file(folder.path() / "plan.json"));
    CHECK(pp::parse_json(simulated.out)["makespan_s"].get<double>() ==
          doctest::Approx(plan.predicted.makespan.count()));
  }

  TEST_CASE("the trace is a Chrome trace with one event per operation at least") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    REQUIRE(folder.plan({"simulate", "plan.json", "--trace", "trace.json"}).code == 0);
    const pp::Json trace = pp::parse_json(pp::read_file(folder.path() / "trace.json"));
    CHECK(trace.at("traceEvents").size() >= 2 * (4 + 4 + 1));  // two workers: four F, four B, one U each
  }

  TEST_CASE("pictures go to files, or alone to stdout") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    const Outcome both = folder.plan({"simulate", "plan.json", "--svg", "s.svg", "--trace", "t.json", "-q"});
    REQUIRE(both.code == 0);
    const std::string svg = pp::read_file(folder.path() / "s.svg");
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(pp::parse_json(pp::read_file(folder.path() / "t.json")).contains("traceEvents"));
    CHECK(both.out.find("worker 1 |") != std::string::npos);
    CHECK(folder.plan({"simulate", "plan.json", "--svg", "-"}).out == svg);
    CHECK(folder.plan({"show", "plan.json", "--svg", "-"}).out == svg);
    const Outcome refused = folder.plan({"simulate", "plan.json", "--svg", "-", "--trace", "-"});
    CHECK(refused.code == 2);
    CHECK(refused.err == "pp-plan: error: two outputs want stdout; give one of them a file\n");
  }

  TEST_CASE("several plans are drawn on one axis, in a picture or on a page, and printed one after the other") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    std::filesystem::copy(folder.path() / "plan.json", folder.path() / "other.json");
    REQUIRE(folder.plan({"show", "plan.json", "other.json", "--svg", "both.svg", "--html", "both.html"}).code ==
            0);
    const std::string svg = pp::read_file(folder.path() / "both.svg");
    CHECK(svg.find(">plan.json: ") != std::string::npos);
    CHECK(svg.find(">other.json: ") != std::string::npos);
    const std::string page = pp::read_file(folder.path() / "both.html");
    CHECK(page.starts_with("<!DOCTYPE html>"));
    CHECK(page.find("\"name\":\"other.json\"") != std::string::npos);
    CHECK(folder.plan({"show", "plan.json", "other.json", "--html", "-"}).out == page);
    const std::string one = folder.plan({"show", "plan.json"}).out;
    CHECK(folder.plan({"show", "plan.json", "other.json"}).out == "plan.json\n" + one + "\nother.json\n" + one);
    CHECK(folder.plan({"show", "plan.json", "other.json", "--json"}).err ==
          "pp-plan: error: --json prints one plan, but 2 are given; call pp-plan show for each\n");
    CHECK(folder.plan({"show", "plan.json", "other.json", "--trace", "t.json"}).err ==
          "pp-plan: error: --trace draws one plan, but 2 are given; use --svg or --html, or call pp-plan show "
          "for "
          "each\n");
  }

  TEST_CASE("the timeline keeps to its width and is coloured on request only") {
    const Folder folder;
    REQUIRE(folder.plan(kTwoStages).code == 0);
    const Outcome plain = folder.plan({"show", "plan.json", "--timeline", "--width", "60"});
    REQUIRE(plain.code == 0);
    CHECK(plain.out.find('\033') == std::string::npos);
    // 60 columns: 9 for the name, 2 for the frame, 9 for the share of idle time, 40 for the step.
    const std::size_t row = plain.out.find(" worker 1 |") + 11;
    std::size_t cells = 0;
    for (std::size_t i = row; plain.out.at(i) != '|'; ++i) {
      if ((static_cast<unsigned char>(plain.out[i]) & 0xC0U) != 0x80U) ++cells;  // idle time is a two-byte dot
    }
    CHECK(cells == 40);
    const Outcome colored = folder.plan({"show", "plan.json", "--timeline", "--color", "always"});
    CHECK(colored.out.find("\033[38;5;16;48;5;75mF0") != std::string::npos);
  }

  TEST_CASE("--json and -o - print the plan alone") {
    const Folder folder;
    std::vector<std::string> arguments = kTwoStages;
    arguments.back() = "-";
    const Outcome plain = folder.plan(arguments);
    REQUIRE(plain.code == 0);
    CHECK(pp::plan::parse_plan(plain.out).stages.size() == 2);
    arguments.resize(arguments.size() - 2);
    arguments.emplace_back("--json");
    CHECK(folder.plan(arguments).out == plain.out);
  }

  TEST_CASE("--explain follows the table, or joins the printed JSON; the plan's file stays as it is") {
    const Folder folder;
    const Outcome plain = folder.plan(kTwoStages);
    const std::string file = pp::read_file(folder.path() / "plan.json");
    std::vector<std::string> arguments = kTwoStages;
    arguments.emplace_back("--explain");
    const Outcome text = folder.plan(arguments);
    REQUIRE(text.code == 0);
    CHECK(text.out.starts_with(plain.out + "\nChosen: 1f1b, layers 3|3 on replicas 1-1, 4 micro-batches: "));
    CHECK(pp::read_file(folder.path() / "plan.json") == file);

    arguments.emplace_back("--json");
    const Outcome printed = folder.plan(arguments);
    REQUIRE(printed.code == 0);
    CHECK(pp::read_file(folder.path() / "plan.json") == file);
    pp::Json json = pp::parse_json(printed.out);
    // 18 ms a stage and micro-batch, four of them, and one more to fill.
    CHECK(json.at("explanation").at("parts").at("bubble_s").get<double>() ==
          doctest::Approx(0.018).epsilon(1e-3));
    json.erase("explanation");
    CHECK(pp::dump_json(json) == file);
  }

  TEST_CASE("--explain is refused where stdout is the plan alone or a peer's") {
    const Folder folder;
    std::vector<std::string> arguments{"profile.json", "--devices", "2",         "--bandwidth", "1e9",
                                       "--mini-batch", "64",        "--explain", "--json"};
    const Outcome alone = folder.plan(arguments);
    CHECK(alone.code == 2);
    CHECK(alone.err ==
          "pp-plan: error: --explain: stdout is the plan alone; write the plan to a file with -o FILE\n");
    arguments.insert(arguments.end(), {"--cost-model", "pipedream-code"});
    const Outcome peer = folder.plan(arguments);
    CHECK(peer.code == 2);
    CHECK(peer.err == "pp-plan: error: --explain: only for --cost-model pp; leave one of the two out\n");
  }

  TEST_CASE("--explain of what does not fit is the reason and the remedy, exit 3") {
    const Folder folder;
    std::vector<std::string> arguments = kTwoStages;
    arguments.insert(arguments.end(), {"--memory-limit", "1KiB"});
    const Outcome plain = folder.plan(arguments);
    arguments.emplace_back("--explain");
    const Outcome explained = folder.plan(arguments);
    CHECK(explained.code == 3);
    CHECK(explained.out.empty());
    CHECK(explained.err == plain.err);
    CHECK(explained.err.starts_with("pp-plan: no feasible plan: does not fit: "));
    CHECK(explained.err.find("\npp-plan: this would fit: --memory-limit ") != std::string::npos);
  }

  TEST_CASE("a memory limit below the weights is exit 3 with a limit that works") {
    const Folder folder;
    const std::vector<std::string> request{
        "profile.json", "--devices",       "2", "--bandwidth", "1e9", "--mini-batch",
        "64",           "--micro-batches", "4", "--json"};
    std::vector<std::string> limited = request;
    limited.insert(limited.end(), {"--memory-limit", "1KiB"});
    const Outcome refused = folder.plan(limited);
    REQUIRE(refused.code == 3);
    CHECK(refused.err.find("no feasible plan") != std::string::npos);
    const pp::Json answer = pp::parse_json(refused.out);
    CHECK(answer["feasible"] == false);
    const auto smallest = answer["smallest_memory_limit_bytes"].get<std::int64_t>();
    limited.back() = std::to_string(smallest);
    CHECK(folder.plan(limited).code == 0);
    limited.back() = std::to_string(smallest - 1);
    CHECK(folder.plan(limited).code == 3);
  }

  TEST_CASE("the table and --explain show how many micro-batches stages hold, beside what 1f1b would hold") {
    const Folder folder;
    std::vector<std::string> arguments = kTwoStages;
    arguments.insert(arguments.end(), {"--window", "3,1", "--explain"});
    const Outcome wide = folder.plan(arguments);
    CAPTURE(wide.err);
    REQUIRE(wide.code == 0);
    CHECK(wide.out.find("3 (2)") != std::string::npos);
    CHECK(wide.out.find("\nheld: micro-batches between forward and backward on a worker; in brackets what "
                        "--window win would hold\n") != std::string::npos);
    CHECK(
        wide.out.find("\nWindows: 3, 1 micro-batches held, stage by stage; the schedule's rule (--window win) "
                      "holds 2, 1.\n") != std::string::npos);
    const Outcome classic = folder.plan(kTwoStages);  // practically free links: nothing to hide
    CHECK(classic.out.find("in brackets") == std::string::npos);
    CHECK(folder.plan({"show", "plan.json"}).out == classic.out);
  }

  TEST_CASE("--time-limit ends the search with the best plan so far, and its certificate says so") {
    const Folder folder;
    std::vector<std::string> arguments = kTwoStages;
    arguments.insert(arguments.end(), {"--time-limit", "1ns"});
    const Outcome outcome = folder.plan(arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.find("\ncut short by the time limit: the best of what was searched until then\n") !=
          std::string::npos);
    CHECK(outcome.out.find("exact over") == std::string::npos);
    const pp::plan::Plan plan = pp::plan::parse_plan(pp::read_file(folder.path() / "plan.json"));
    CHECK(plan.stages.size() == 2);  // as asked for; nothing else was looked at
    CHECK(plan.certificate.lower_bound <= plan.predicted.step);
    arguments.back() = "soon";
    CHECK(folder.plan(arguments).code == 2);
  }

  TEST_CASE("the schedules are listed") {
    const Folder folder;
    const Outcome outcome = folder.plan({"schedules", "--json"});
    REQUIRE(outcome.code == 0);
    std::vector<std::string> names;
    for (const pp::Json& row : pp::parse_json(outcome.out)) names.push_back(row["name"].get<std::string>());
    for (const char* name : {"gpipe", "1f1b", "pipedream"})
      CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
}

}  // namespace plan_test
