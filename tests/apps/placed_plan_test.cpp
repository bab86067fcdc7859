// Plans of the schedules that place stages themselves, and of programs from a file.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace placed_plan_test {
namespace {

using pp::plan::Plan;
using pp::test::Outcome;

const std::filesystem::path kPlan = pp::test::program("pp-plan");

/// Sixteen layers, 2 ms each per 16 samples: forward 2, backward 4 ms a layer.
struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(16, 2.0))); }
  Outcome run(std::vector<std::string> arguments) const {
    return pp::test::run_checked(kPlan, arguments, path());
  }
  Outcome plan(std::vector<std::string> arguments, const std::string& devices = "2") const {
    arguments.insert(arguments.begin(), {"profile.json", "--devices", devices, "--bandwidth", "1e12",
                                         "--mini-batch", "128", "--micro-batches", "8", "-o", "plan.json"});
    return run(arguments);
  }
  Plan read() const { return pp::plan::parse_plan(pp::read_file(path() / "plan.json")); }
};

/// What every plan has to pass.
void check_valid(const Folder& folder, const Outcome& outcome) {
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Outcome checked = folder.run({"check", "plan.json", "--profile", "profile.json"});
  CAPTURE(checked.err);
  CHECK(checked.code == 0);
  CHECK(folder.run({"simulate", "plan.json"}).code == 0);
}

}  // namespace

TEST_SUITE("apps/placed_plan") {
  TEST_CASE("every schedule that places its stages plans an even chain evenly and promises its formula") {
    const Folder folder;
    for (const std::string name : {"zb-h1", "zb-h2", "interleaved", "looped-bfs", "zb-v", "dualpipe-v"}) {
      INFO(name);
      check_valid(folder, folder.plan({"--schedule", name, "--stages", "4"}, "4"));
      const Plan plan = folder.read();
      const int chunks = plan.schedule.chunks_per_worker;
      CHECK(chunks == (name.starts_with("zb-h") ? 1 : 2));
      CHECK(plan.workers.size() == 4);
      CHECK(plan.stages.size() == static_cast<std::size_t>(4 * chunks));
      // A worker's quarter of the model is two pairs of linear and relu: F = 8; a linear layer's backward of 4
      // splits into halves, a relu's is all input gradient: I = 2*2 + 2*4 = 12, W = 2*2 = 4 ms per micro-batch.
      const Outcome even = folder.run({"simulate", "--schedule", name, "--stages", "4", "--micro-batches", "8",
                                       "--costs", "F=0.008,I=0.012,W=0.004", "--json"});
      const auto expected = nlohmann::json::parse(even.out);
      CHECK(plan.predicted.step.count() <= expected.at("steady_period").get<double>() * 1.001);
      const auto is_even = [&](const auto& stage) { return stage.layers.size() == 16 / plan.stages.size(); };
      if (std::ranges::all_of(plan.stages, is_even))
        CHECK(plan.predicted.makespan.count() ==
              doctest::Approx(expected.at("makespan").get<double>()).epsilon(1e-3));
    }
  }

  TEST_CASE("the automatic zero-bubble schedule plans at least as fast a step as zb-h1 and zb-h2") {
    const Folder folder;
    const auto step = [&](const std::string& name) {
      check_valid(folder, folder.plan({"--schedule", name, "--stages", "4"}, "4"));
      return folder.read().predicted.step.count();
    };
    const double found = step("auto-zb");
    CHECK(found <= step("zb-h1") * (1 + 1e-9));
    CHECK(found <= step("zb-h2") * (1 + 1e-9));
  }

  TEST_CASE("chimera holds every stage twice") {
    const Folder folder;
    check_valid(folder, folder.plan({"--schedule", "chimera", "--stages", "2"}));
    const Plan plan = folder.read();
    REQUIRE(plan.stages.size() == 2);
    for (const auto& stage : plan.stages) CHECK(stage.workers.size() == 2);
  }

  TEST_CASE("programs from a file are planned as they stand") {
    const Folder folder;
    REQUIRE(folder
                .run({"simulate", "--schedule", "zb-v", "--stages", "2", "--micro-batches", "8", "--to-csv",
                      "zb-v.csv"})
                .code == 0);
    check_valid(folder, folder.plan({"--programs", "zb-v.csv"}));
    const Plan written = folder.read();
    CHECK(written.schedule.name == "custom");
    CHECK(written.schedule.chunks_per_worker == 2);
    check_valid(folder, folder.plan({"--schedule", "zb-v", "--stages", "2"}));
    const Plan named = folder.read();
    CHECK(written.predicted.step == named.predicted.step);
    for (std::size_t w = 0; w < 2; ++w) CHECK(written.workers[w].program == named.workers[w].program);
  }

  TEST_CASE("uneven layers: boundaries move to where the simulated step is shortest") {
    // Two workers, two stages each: every partition of 6 layers into 4 stages is tried by hand through --cuts.
    const pp::test::TemporaryFolder folder;
    pp::test::write_profile(folder.path(), pp::test::sample_profile(std::vector{5.0, 1.0, 2.0, 4.0, 1.0, 3.0}));
    const auto step = [&](std::vector<std::string> extra) {
      std::vector<std::string> arguments{
          "profile.json",    "--devices", "2",          "--bandwidth", "1e12", "--mini-batch", "128",
          "--micro-batches", "8",         "--schedule", "interleaved", "-o",   "plan.json"};
      arguments.insert(arguments.end(), extra.begin(), extra.end());
      const Outcome outcome = pp::test::run_checked(kPlan, arguments, folder.path());
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      return pp::plan::parse_plan(pp::read_file(folder.path() / "plan.json")).predicted.step.count();
    };
    double best = 1e9;
    for (int a = 1; a < 4; ++a) {
      for (int b = a + 1; b < 5; ++b) {
        for (int c = b + 1; c < 6; ++c) {
          const std::string cuts = std::to_string(a) + "," + std::to_string(b) + "," + std::to_string(c);
          best = std::min(best, step({"--cuts", cuts}));
        }
      }
    }
    CHECK(step({"--stages", "2"}) == doctest::Approx(best).epsilon(1e-9));
  }

  TEST_CASE(
      "swapped weights: as many stages as the memory asks for, loaded ahead where that is faster and fits") {
    const Folder folder;
    const auto plan = [&](const std::string& schedule, const std::string& limit, const std::string& overlap) {
      check_valid(folder, folder.plan({"--schedule", schedule, "--swap-bandwidth", "100MB/s", "--memory-limit",
                                       limit, "--swap-overlap", overlap}));
      return folder.read();
    };
    const auto peak = [](const Plan& of) {
      pp::Bytes most;
      for (const auto& worker : of.predicted.workers) most = std::max(most, worker.memory.peak);
      return most;
    };
    for (const std::string schedule : {"harmony-pp", "harmony-dp"}) {
      CAPTURE(schedule);
      const Plan ample = plan(schedule, "1GiB", "0");
      const std::string half = std::to_string(peak(ample).value / 2);
      const Plan tight = plan(schedule, half, "0");
      CHECK(peak(tight).value <= peak(ample).value / 2);
      CHECK(tight.stages.size() > ample.stages.size());
      CHECK(tight.devices.front().memory.value == peak(ample).value / 2);
      CHECK(ample.context.at("prefetch") == "false");  // it gains nothing where devices copy by themselves
      const Plan ahead = plan(schedule, "1GiB", "1");
      // Of two stages on two workers harmony-pp has nothing to load ahead; harmony-dp has, on each.
      if (schedule == "harmony-dp") CHECK(ahead.predicted.step < ample.predicted.step);
      CHECK(ahead.predicted.step <= ample.predicted.step);
    }
  }

  TEST_CASE("what the schedules exclude is refused before any search") {
    const Folder folder;
    const auto refusal = [&](const std::vector<std::string>& arguments) {
      const Outcome outcome = folder.plan(arguments, "4");
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(refusal({"--schedule", "harmony-pp"}) ==
          "pp-plan: error: schedule harmony-pp: weights live on the host, and nothing says how fast they come "
          "to a device; add --swap-bandwidth, for example 12GB/s (the report of pp-run tells what it "
          "measured)\n");
    CHECK(refusal({"--schedule", "harmony-dp", "--swap-bandwidth", "1GB/s", "--recompute", "auto"}) ==
          "pp-plan: error: schedule harmony-dp: its tasks say what runs again; leave --recompute out\n");
    CHECK(refusal({"--schedule", "harmony-dp", "--swap-bandwidth", "1GB/s", "--swap-overlap", "2"}) ==
          "pp-plan: error: swap_overlap = 2.000000 is not a share of what is swapped; give 0 to 1\n");
    CHECK(refusal({"--schedule", "zb-h1", "--replicas", "2-1"}) ==
          "pp-plan: error: schedule zb-h1 runs whole pipelines side by side; give --replicas one number for "
          "all of its "
          "workers\n");
    CHECK(refusal({"--schedule", "interleaved", "--stages", "3"}) ==
          "pp-plan: error: schedule interleaved: micro_batches = 8 is not a multiple of 3 workers; use 6 or 9, "
          "or group = 8\n");
    CHECK(refusal({"--schedule", "custom"}) ==
          "pp-plan: error: schedule custom and a file of programs go together; add --programs FILE.csv\n");
  }

  TEST_CASE("a schedule whose activations do not fit is infeasible") {
    const Folder folder;
    const Outcome outcome =
        folder.plan({"--schedule", "zb-h2", "--stages", "4", "--memory-limit", "64KiB"}, "4");
    CHECK(outcome.code == 3);
    // A worker's two linear layers have 3 * 2 * 16,640 = 99,840 bytes of weights, gradients and momentum.
    CHECK(outcome.err.find("pp-plan: no feasible plan: does not fit: schedule zb-h2 needs ") !=
          std::string::npos);
    CHECK(outcome.err.find(" more than the limit of 65536 bytes; smallest feasible limit ") !=
          std::string::npos);
    CHECK(outcome.err.find("pp-plan: this would fit: ") != std::string::npos);
  }
}

}  // namespace placed_plan_test
