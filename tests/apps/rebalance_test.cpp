// --rebalance: when measured speeds are worth a new plan, and a training that goes on with it.
#include "apps/run/keep_going/rebalance.h"

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libplan/answer/make_plan.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace rebalance_test {
namespace {

using namespace pp::run_tool;
using pp::Seconds;
using pp::test::Outcome;
using Words = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Six layers of 1 + 2 ms on two devices, 1f1b with four micro-batches.
Replanning six_layers() {
  const pp::Profile profile = pp::plan::test::make_profile(
      {std::vector<pp::plan::test::LayerRow>(6, {1, 2, 1000, 0, 0, 0, 0}), {}, {1, 2, 4}});
  pp::plan::PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = "1f1b";
  request.replicas = {1, 1};
  pp::plan::Plan plan =
      std::get<pp::plan::Plan>(pp::plan::make_plan(profile, pp::plan::test::make_cluster(2), request));
  return {.first = {.plan = std::move(plan), .file = "plan.json"}, .profile = profile};
}

PlacedPlan current_of(const BalancedPlan& next) { return {.plan = next.plan, .file = "next.json"}; }

/// How many layers the device has.
std::size_t layers_on(const pp::plan::Plan& plan, int device) {
  std::size_t layers = 0;
  for (const pp::plan::Stage& stage : plan.stages)
    if (device_of(plan, stage.workers.front()).id == pp::DeviceId{device}) layers += stage.layers.size();
  return layers;
}

}  // namespace

TEST_SUITE("apps/rebalance") {
  TEST_CASE("what is saved is a share of the time to come, and of no more than what is left") {
    // Steps of 2 s become 1.5: a quarter of ten minutes, or of the 100 s that 50 steps would take.
    CHECK(saved_time(Seconds(2), Seconds(1.5), Seconds(600), 1000).count() == doctest::Approx(150));
    CHECK(saved_time(Seconds(2), Seconds(1.5), Seconds(600), 50).count() == doctest::Approx(25));
    CHECK(saved_time(Seconds(2), Seconds(2), Seconds(600), 1000).count() == doctest::Approx(0));
  }

  TEST_CASE("a device of half its speed gets fewer layers, and its old share when it has its speed back") {
    const Replanning job = six_layers();
    REQUIRE(stages_text(job.first.plan) == "3|3");
    const auto next = balanced_plan(job, job.first, {1, 2});
    REQUIRE(next.has_value());
    CHECK(next->speeds == std::vector<double>{1, 0.5});
    CHECK(layers_on(next->plan, 0) == 4);
    CHECK(layers_on(next->plan, 1) == 2);
    // 3|3 layers are 9 and 18 ms a micro-batch, 4|2 are 12 each: the busier one does four, and the other's are
    // around them once: 72 + 9 and 48 + 12.
    CHECK(next->before.count() == doctest::Approx(81e-3));
    CHECK(next->plan.predicted.step.count() == doctest::Approx(60e-3));

    Replanning later = job;
    later.speeds = next->speeds;
    std::vector<double> factors{1, 1};
    for (const pp::plan::Worker& worker : next->plan.workers)
      if (worker.device == pp::DeviceId{1}) factors[index(worker.id)] = 0.5;
    const auto back = balanced_plan(later, current_of(*next), factors);
    REQUIRE(back.has_value());
    CHECK(back->speeds[1] == doctest::Approx(1));
    CHECK(stages_text(back->plan) == "3|3");
  }

  TEST_CASE("where nothing is off, or by noise, the plan stays") {
    const Replanning job = six_layers();
    CHECK_FALSE(balanced_plan(job, job.first, {1, 1}).has_value());
    CHECK_FALSE(balanced_plan(job, job.first, {1.05, 0.95}).has_value());
  }

  TEST_CASE("plans on a part of the devices know which ones they have") {
    // The second of three devices is left out.
    Replanning job = six_layers();
    pp::plan::Plan& first = job.first.plan;
    const std::vector<pp::Device> two = first.devices;
    first.devices.insert(first.devices.begin() + 1, two[1]);
    PlacedPlan current = job.first;
    current.plan.devices = two;
    current.devices = {0, 2};
    const auto next = balanced_plan(job, current, {1, 2});
    REQUIRE(next.has_value());
    CHECK(next->speeds == std::vector<double>{1, 1, 0.5});
    CHECK(layers_on(next->plan, 1) == 2);
  }

  TEST_CASE("it is said what was measured and why the plan changes or stays") {
    Replanning job = six_layers();
    const ToldSpeeds told{{1, 2}, 1'000'000};
    Rebalancer rebalancer(job, Seconds(3600));
    rebalancer.begin();
    CHECK_FALSE(rebalancer.look(told, 10, job.first).has_value());  // what a start takes is not known
    rebalancer.trains();
    CHECK_FALSE(rebalancer.look(std::nullopt, 10, job.first).has_value());
    const auto stays = rebalancer.look(ToldSpeeds{{1, 2}, 10}, 10, job.first);  // no step is left
    REQUIRE(stays.has_value());
    CHECK_FALSE(stays->next.has_value());
    CHECK(
        has(stays->measured,
            "device cpu:1 takes 2 times as long as planned; the plan stays, as the best one promises 60 ms per "
            "step in place of 81 ms, which does not repay a restart of "));
    CHECK_FALSE(rebalancer.look(told, 10, job.first).has_value());  // all is said

    rebalancer.begin();
    rebalancer.trains();
    const auto changes = rebalancer.look(told, 10, job.first);
    REQUIRE(changes.has_value());
    REQUIRE(changes->next.has_value());
    CHECK(changes->measured ==
          "device cpu:1 takes 2 times as long as planned; the training stops with a checkpoint for a plan that "
          "is "
          "faster so");
    CHECK(has(changes->promise, "it promises 60 ms per step in place of 81 ms and at most "));
    CHECK(has(changes->promise, "so the weights keep their bits; a restart takes "));
    // The next change has to wait until this one has had its hour.
    CHECK_FALSE(rebalancer.look(ToldSpeeds{{3, 1}, 1'000'000}, 20, job.first).has_value());
  }

  // A plan that promises a tenth of what worker 1 takes, as if its device were slow.
  TEST_CASE("a training goes on with a plan for the speeds that it measured, to the same bits") {
    const pp::test::TemporaryFolder folder;
    const auto tool = [&](const std::string& name, const Words& words) {
      const Outcome outcome = pp::test::run_program(pp::test::program(name), words, folder.path());
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
    };
    const auto read = [&](const std::string& name) { return pp::read_file(folder.path() / name); };
    tool("pp-profile", {"models", "mlp:inputs=64,width=256", "-o", "model.json"});
    tool("pp-profile", {"run", "model.json", "--quick", "--budget", "50ms", "--micro-batch-sizes", "4", "-q",
                        "-o", "profile.json"});
    tool("pp-plan",
         {"profile.json", "--devices", "2", "--bandwidth", "10GB/s", "--mini-batch", "16", "--micro-batches",
          "4", "--schedule", "1f1b", "--replicas", "1-1", "-q", "-o", "plan.json"});
    pp::Json plan = pp::parse_json(read("plan.json"));
    pp::Json& busy = plan["predicted"]["workers"][1]["busy_s"];
    busy = busy.get<double>() / 10;
    pp::write_file(folder.path() / "plan.json", pp::dump_json(plan));

    const Words training{"plan.json",    "--data",      "synthetic", "--no-evaluate", "--checkpoint",
                         "ck",           "--every",     "1000000",   "--steps",       "1000000",
                         "--keep-going", "--rebalance", "1h",        "--profile",     "profile.json",
                         "-o",           "report.json"};
    const Outcome outcome = pp::test::run_program(
        pp::test::program("pp-run"), training, folder.path(),
        {.signal = SIGINT, .signal_when = "so the weights keep their bits; a restart takes"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 130);
    CHECK(has(outcome.err, "(worker 1) takes "));
    CHECK(has(outcome.err,
              "times as long as planned; the training stops with a checkpoint for a plan that is "
              "faster so\n"));
    CHECK(has(outcome.err, "the plan: 1f1b, layers per stage "));
    CHECK(has(outcome.err, "(ck/launch/plan-2.json)\n"));
    CHECK(has(outcome.err, "so the weights keep their bits; a restart takes "));
  }
}

}  // namespace rebalance_test
