// pp-plan simulate --schedule, --csv: schedules without a profile, and pp-plan schedules.
#include <fstream>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_schedule_test {
namespace {

using nlohmann::json;
using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

struct Folder : pp::test::TemporaryFolder {
  Outcome simulate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "simulate");
    return pp::test::run_checked(kPlan, arguments, path());
  }
  json figures(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Outcome outcome = simulate(arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return json::parse(outcome.out);
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path() / name) << text; }
};

std::vector<std::string> named(const std::string& schedule, int stages, int micro_batches) {
  return {"--schedule",           schedule,          "--stages",
          std::to_string(stages), "--micro-batches", std::to_string(micro_batches)};
}

}  // namespace

TEST_SUITE("apps/plan_schedule") {
  TEST_CASE("a schedule is simulated without a profile, in the unit of its costs") {
    const Folder folder;
    // (M + K - 1)(F + B) = 11 * 3, bubble 3/11, windows 4, 3, 2, 1.
    const json figures = folder.figures(named("1f1b", 4, 8));
    CHECK(figures.at("makespan") == 33.0);
    CHECK(figures.at("bubble_fraction").get<double>() == doctest::Approx(3.0 / 11));
    CHECK(figures.at("peak_in_flight") == json{4.0, 3.0, 2.0, 1.0});
    CHECK(figures.at("steady_period") == 33.0);
    CHECK_FALSE(figures.contains("programs"));
    // Twice the forward, latency 0.5: gpipe takes (M+K-1)*4 + 2(K-1)*0.5.
    auto gpipe = named("gpipe", 3, 4);
    gpipe.insert(gpipe.end(), {"--costs", "F=2,I=1,W=1,comm=0.5"});
    CHECK(folder.figures(gpipe).at("makespan") == 6 * 4 + 4 * 0.5);
  }

  TEST_CASE("shares of a step that takes no time are dashes") {
    const Folder folder;
    auto idle = named("gpipe", 2, 2);
    idle.insert(idle.end(), {"--costs", "F=0,I=0,W=0"});
    const Outcome outcome = folder.simulate(idle);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.find("no order of these operations takes less than 0 s (gap -)\n") != std::string::npos);
    CHECK(outcome.out.find("nan") == std::string::npos);
  }

  TEST_CASE("--programs adds every worker's operations") {
    const Folder folder;
    auto arguments = named("zb-h1", 2, 2);
    arguments.push_back("--programs");
    CHECK(folder.figures(arguments).at("programs") ==
          json{"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1 U0", "F1.0 I1.0 F1.1 I1.1 W1.0 W1.1 U1"});
  }

  TEST_CASE("the automatic schedule is never worse than the hand-made ones") {
    const Folder folder;
    for (const int m : {4, 8, 13}) {
      std::vector<std::string> costs{"--costs", "F=1,I=1.25,W=0.75,comm=0.125"};
      const auto of = [&](const std::string& name) {
        auto arguments = named(name, 4, m);
        arguments.insert(arguments.end(), costs.begin(), costs.end());
        return folder.figures(arguments);
      };
      const json found = of("auto-zb");
      CHECK(found.contains("search"));
      CHECK(found.at("makespan").get<double>() >= found.at("makespan_bound").get<double>() - 1e-9);
      for (const std::string name : {"zb-h1", "zb-h2"}) {
        CHECK(found.at("steady_period").get<double>() <= of(name).at("steady_period").get<double>() + 1e-9);
      }
    }
  }

  TEST_CASE("programs leave and come back as CSV and take the same time") {
    const Folder folder;
    for (const std::string name : {"1f1b", "zb-v", "interleaved", "chimera"}) {
      auto out = named(name, 4, 8);
      out.insert(out.end(), {"--to-csv", "programs.csv"});
      const json written = folder.figures(out);
      const json read = folder.figures({"--csv", "programs.csv"});
      INFO(name);
      CHECK(read.at("makespan") == written.at("makespan"));
      CHECK(read.at("peak_in_flight") == written.at("peak_in_flight"));
      CHECK(folder.simulate({"--csv", "programs.csv", "--to-csv", "-"}).out ==
            pp::read_file(folder.path() / "programs.csv"));
    }
  }

  TEST_CASE("a schedule written by hand that deadlocks names the blocking operation of every worker") {
    const Folder folder;
    folder.write("bad.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
    const Outcome outcome = folder.simulate({"--csv", "bad.csv"});
    CHECK(outcome.code == 2);
    CHECK(outcome.out == "");
    CHECK(outcome.err ==
          "pp-plan: error: bad.csv: plan: deadlock after 2 of 10 operations\n"
          "  worker 0: next B0.0 needs B1.0 (worker 1)\n"
          "  worker 1: next F1.1 needs F0.1 (worker 0)\n");
  }

  TEST_CASE("what cannot be read or is not legal is refused with the nearest legal value") {
    const Folder folder;
    folder.write("bad.csv", "0F0,0G0\n");
    const auto error = [&](const std::vector<std::string>& arguments) {
      const Outcome outcome = folder.simulate(arguments);
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(error({"--csv", "bad.csv"}) ==
          "pp-plan: error: bad.csv: row 0, cell 1, \"0G0\": give stage, kind and micro-batch, as in 1F2; kinds "
          "are "
          "F, B, I, W, R\n");
    CHECK(error(named("interleaved", 4, 6)) ==
          "pp-plan: error: schedule interleaved: micro_batches = 6 is not a multiple of 4 workers; use 4 or 8, "
          "or group = 6\n");
    CHECK(error(named("dualpipe-v", 4, 4)) ==
          "pp-plan: error: schedule dualpipe-v: micro_batches = 4 is less than 2*workers = 8\n");
    CHECK(error(named("naive", 4, 4)) == "pp-plan: error: schedule naive: needs micro_batches = 1, found 4\n");
    CHECK(error(named("chimera", 3, 3)) == "pp-plan: error: schedule chimera: workers = 3 is odd\n");
    CHECK(error({"--schedule", "gpipe"}) ==
          "pp-plan: error: --schedule needs the number of workers; add --stages K, or --replicas R-R\n");
    CHECK(error({}) ==
          "pp-plan: error: nothing to simulate; name a plan.json, --schedule NAME, or --csv FILE\n");
    auto costs = named("gpipe", 2, 2);
    costs.insert(costs.end(), {"--costs", "F=1,X=2"});
    CHECK(error(costs) ==
          "pp-plan: error: costs: \"X=2\" is unknown; use F, I, W, B, R, AR, U, L, E or comm\n");
    auto limited = named("1f1b", 4, 8);
    limited.insert(limited.end(), {"--in-flight-limit", "3"});
    CHECK(error(limited) ==
          "pp-plan: error: worker 0: holds up to 4 micro-batches in flight, its limit is 3; use a smaller "
          "window or another "
          "schedule\n");
  }

  TEST_CASE("blocking sends deadlock 1f1b, one message of room does not") {
    const Folder folder;
    auto arguments = named("1f1b", 2, 4);
    arguments.insert(arguments.end(), {"--queues", "0"});
    const Outcome blocked = folder.simulate(arguments);
    CHECK(blocked.code == 2);
    CHECK(blocked.err.starts_with("pp-plan: error: plan: deadlock with blocking sends after "));
    arguments.back() = "1";
    CHECK(folder.simulate(arguments).code == 0);
  }

  TEST_CASE("pictures of a schedule") {
    const Folder folder;
    auto arguments = named("zb-h2", 3, 6);
    arguments.insert(arguments.end(), {"--svg", "step.svg", "--trace", "step.json"});
    const Outcome outcome = folder.simulate(arguments);
    REQUIRE(outcome.code == 0);
    CHECK(outcome.out.find("worker 2") != std::string::npos);
    CHECK(pp::read_file(folder.path() / "step.svg").starts_with("<svg"));
    CHECK(json::parse(pp::read_file(folder.path() / "step.json")).contains("traceEvents"));
  }

  TEST_CASE("the registry lists every schedule with what it needs") {
    const Folder folder;
    const Outcome outcome = pp::test::run_checked(kPlan, {"schedules", "--json"}, folder.path());
    REQUIRE(outcome.code == 0);
    const json rows = json::parse(outcome.out);
    CHECK(rows.size() == 32);
    for (const json& row : rows) {
      CHECK_FALSE(row.at("summary").get<std::string>().empty());
      CHECK_FALSE(row.at("weight_policies").empty());
    }
  }
}

}  // namespace plan_schedule_test
