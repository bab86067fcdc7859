// Plans of the schedules that do not admit every partition or keep other weight versions than one.
#include "libplan/request/shapes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/plan/programs.h"
#include "libplan/price/predict.h"
#include "libplan/report/sweep.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/shapes");

namespace pp::plan::shapes_test {
namespace {

using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Layers of 1 ms forward, 2 ms backward per sample, 1000 bytes of weights, 100 bytes saved, nothing sent.
Profile even_chain(int layers) {
  return make_profile({std::vector<test::LayerRow>(at(layers), {1, 2, 1000, 0, 100, 0, 0}), {}, {1, 2, 4}});
}

PlanRequest request_of(const std::string& schedule, int mini_batch, int micro_batches) {
  PlanRequest request;
  request.schedule = schedule;
  request.mini_batch = mini_batch;
  request.micro_batches = micro_batches;
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

std::string refusal(const PlanRequest& request, int layers = 6, int devices = 4) {
  try {
    make_plan(even_chain(layers), make_cluster(devices), request);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("every weight policy keeps its versions, and its plan says so") {
  // Three layers on three devices, windows 3, 2, 1. A stage has 1000 bytes of weights, of gradients and of
  // momentum, 1000 for each older version, and 100 for each micro-batch in flight.
  struct Row {
    std::string schedule;
    WeightPolicy policy;
    int micro_batches;
    std::vector<int> older;  ///< versions besides the newest
  };
  const std::vector<Row> rows{{"pipedream", WeightPolicy::stash, 1, {2, 1, 0}},
                              {"pipedream", WeightPolicy::latest, 1, {0, 0, 0}},
                              {"pipedream", WeightPolicy::two_buffered, 4, {1, 1, 1}},
                              {"vertical-sync", WeightPolicy::vertical_sync, 1, {2, 2, 2}},
                              {"spectrain", WeightPolicy::predict, 1, {1, 1, 1}},
                              {"xpipe", WeightPolicy::predict, 1, {1, 1, 1}},
                              {"xpipe", WeightPolicy::predict, 2, {2, 2, 2}},
                              {"xpipe", WeightPolicy::predict, 4, {2, 2, 2}},
                              {"2bw", WeightPolicy::two_buffered, 4, {1, 1, 1}},
                              {"macrobatch", WeightPolicy::macrobatch, 4, {1, 1, 0}}};
  for (const Row& row : rows) {
    CAPTURE(row.schedule);
    CAPTURE(name_of(row.policy));
    PlanRequest request = request_of(row.schedule, row.micro_batches, row.micro_batches);
    request.weight_policy = row.policy;
    request.cuts = {1, 2};
    request.replicas = {1, 1, 1};
    const Plan plan = planned(even_chain(3), make_cluster(3), request);
    for (std::size_t s = 0; s < 3; ++s) {
      const MemoryPeak& memory = plan.predicted.workers[s].memory;
      CHECK(memory.versions == Bytes(1000 * row.older[s]));
      CHECK(memory.peak == Bytes(3000 + 1000 * row.older[s] + 100 * (3 - static_cast<int>(s))));
    }
    // No stage ever waits: an update costs M times 3 ms.
    CHECK(plan.predicted.step.count() == exactly(0.003 * row.micro_batches));
    CHECK(plan.certificate.gap == doctest::Approx(0).epsilon(1e-9));
    CHECK(plan.schedule.weight_policy == row.policy);
    check_plan(plan);
    CHECK(parse_plan(dump_json(to_json(plan))) == plan);
    CHECK(predict(plan, even_chain(3), cluster_of(plan)) == plan.predicted);
  }
}

TEST_CASE("the smallest memory limit of every schedule equals that of all partitions by hand") {
  // Memory of a stage: 3 w of weights, gradients and momentum, V - 1 older versions of w, and per micro-batch
  // in flight what it saves and receives. Windows by the rule `win`.
  struct Row {
    std::string schedule;
    int micro_batches;
    bool (*admits)(const std::vector<int>& replicas, int micro_batches);
    int (*versions)(int window, int stages);
    bool wide = false;
  };
  const auto any = [](const std::vector<int>&, int) { return true; };
  const auto straight = [](const std::vector<int>& replicas, int) {
    return std::ranges::all_of(replicas, [](int count) { return count == 1; });
  };
  const auto equal = [](const std::vector<int>& replicas, int) {
    return std::ranges::count(replicas, replicas.front()) == std::ssize(replicas);
  };
  const auto updates = [](const std::vector<int>& replicas, int m) {
    const int q = replicas.front();
    return std::ranges::count(replicas, q) == std::ssize(replicas) && m % q == 0 &&
           m / q >= static_cast<int>(replicas.size());
  };
  const auto one_version = [](int, int) { return 1; };
  const std::vector<Row> rows{
      {"pipedream", 1, any, [](int window, int) { return window; }},
      {"vertical-sync", 1, straight, [](int, int stages) { return stages; }},
      {"spectrain", 1, straight, [](int window, int stages) { return window == 1 && stages <= 2 ? 1 : 2; }},
      {"xpipe", 2, straight, [](int window, int stages) { return window == 1 && stages <= 2 ? 1 : 3; }},
      {"2bw", 4, updates, [](int, int) { return 2; }},
      {"macrobatch", 6, updates, [](int window, int) { return std::min(window, 2); }},
      {"data-parallel", 4, [](const std::vector<int>& replicas, int) { return replicas.size() == 1; },
       one_version},
      {"hybrid", 4, equal, one_version},
      {"dapple-pa", 4, straight, one_version},
      {"dapple-pb", 4, straight, one_version, true},
  };
  test::Random random(41);
  for (int round = 0; round < 10; ++round) {
    test::ProfileSpec spec;
    const int layers = random.integer(2, 5);
    for (int l = 0; l < layers; ++l)
      spec.layers.push_back({1, 2, random.integer(0, 40), random.integer(0, 30), random.integer(0, 60), 0, 0});
    const int devices = random.integer(1, 4);
    for (const Row& row : rows) {
      CAPTURE(round);
      CAPTURE(row.schedule);
      const auto bytes = [&](const Partition& partition) {
        const std::vector<int> replicas = replicas_of(partition);
        std::vector<int> window = windows(row.wide ? WindowRule::wide : WindowRule::win, replicas);
        std::int64_t most = 0;
        for (std::size_t s = 0; s < partition.size(); ++s) {
          if (require_schedule(row.schedule).synchronous)
            window[s] = std::min(window[s], (row.micro_batches + replicas[s] - 1) / replicas[s]);
          std::int64_t weights = 0, saved = 0;
          for (int l = partition[s].begin; l < partition[s].end; ++l) {
            weights += spec.layers[at(l)].parameters;
            saved += spec.layers[at(l)].saved;
          }
          const int begin = partition[s].begin;
          const std::int64_t input = begin == 0 ? 0 : spec.layers[at(begin) - 1].output;
          const int versions = row.versions(window[s], static_cast<int>(partition.size()));
          most = std::max(most, (2 + versions) * weights + window[s] * (saved + input));
        }
        return most;
      };
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      SearchSpace space;
      space.layers = layers;
      space.devices = devices;
      test::for_each_partition(space, [&](const Partition& partition) {
        const std::vector<int> replicas = replicas_of(partition);
        const bool synchronous = require_schedule(row.schedule).synchronous;
        if (synchronous && std::ranges::max(replicas) > row.micro_batches) return;
        if (row.admits(replicas, row.micro_batches)) least = std::min(least, bytes(partition));
      });
      if (least == 0) continue;  // nothing to keep: there is no smaller limit
      PlanRequest request = request_of(row.schedule, row.micro_batches, row.micro_batches);
      request.memory_limit = Bytes(std::max<std::int64_t>(1, least - 1));
      const auto short_of = make_plan(make_profile(spec), make_cluster(devices), request);
      if (least > 1) {
        REQUIRE(std::holds_alternative<Infeasible>(short_of));
        CHECK(std::get<Infeasible>(short_of).smallest_limit == Bytes(least));
      }
      request.memory_limit = Bytes(least);
      CHECK(std::holds_alternative<Plan>(make_plan(make_profile(spec), make_cluster(devices), request)));
    }
  }
}

TEST_CASE("schedules that are 1f1b by another name cost what it costs") {
  const Profile profile = make_profile({{{2, 3, 400, 90'000, 500, 0, 0},
                                         {1, 4, 0, 700'000, 900, 0, 0},
                                         {5, 6, 100, 20'000, 300, 0, 0},
                                         {1, 1, 900, 10'000, 200, 0, 0}},
                                        {},
                                        {1}});
  const auto cost = [&](const std::string& schedule, std::vector<int> replicas, WindowRule window) {
    PlanRequest request = request_of(schedule, 6, 6);
    request.replicas = std::move(replicas);
    if (schedule == "1f1b") request.window = window;
    const Plan plan = planned(profile, make_cluster(4), request);
    check_plan(plan);
    std::vector<Bytes> peaks;
    for (const WorkerPrediction& worker : plan.predicted.workers) peaks.push_back(worker.memory.peak);
    return std::tuple(stages_text(plan), plan.predicted.step, peaks);
  };
  CHECK(cost("dapple-pa", {1, 1, 1}, WindowRule::win) == cost("1f1b", {1, 1, 1}, WindowRule::win));
  CHECK(cost("dapple-pb", {1, 1, 1}, WindowRule::win) == cost("1f1b", {1, 1, 1}, WindowRule::wide));
  CHECK(cost("data-parallel", {3}, WindowRule::win) == cost("1f1b", {3}, WindowRule::win));
  PlanRequest request = request_of("hybrid", 6, 6);
  request.replicas = {2, 2};
  const Plan hybrid = planned(profile, make_cluster(4), request);
  request.schedule = "1f1b";
  CHECK(hybrid.predicted.step == planned(profile, make_cluster(4), request).predicted.step);
}

TEST_CASE("hybrid has as many replicas everywhere, data parallelism one stage") {
  // Layers of 8 and 1 ms on three devices: 1f1b gives the first one two of them, 4 to 5 ms a micro-batch; with
  // equal replicas the best is the whole model on each, 3 ms.
  const Profile profile = make_profile({{{3, 5, 0, 0, 0, 0, 0}, {0.5, 0.5, 0, 0, 0, 0, 0}}, {}, {1}});
  for (const char* schedule : {"hybrid", "data-parallel"}) {
    const Plan plan = planned(profile, make_cluster(3), request_of(schedule, 6, 6));
    CHECK(replicas_text(plan) == "3");
    CHECK(plan.predicted.step.count() == exactly(0.018));
  }
  PlanRequest two = request_of("hybrid", 6, 6);
  two.stages = 2;
  CHECK(replicas_text(planned(profile, make_cluster(3), two)) == "1-1");
}

TEST_CASE("with two buffers an update has at least as many micro-batches as stages") {
  // Four layers, four devices, no transfers: as many stages as micro-batches are best.
  for (const int micro_batches : {1, 2, 3, 4}) {
    CAPTURE(micro_batches);
    const Plan plan = planned(even_chain(4), make_cluster(4), request_of("2bw", micro_batches, micro_batches));
    int devices = 0;
    for (const Stage& stage : plan.stages) devices += static_cast<int>(stage.workers.size());
    CHECK(static_cast<int>(plan.stages.size()) * static_cast<int>(plan.stages.front().workers.size()) <=
          micro_batches);
    CHECK(devices == micro_batches);
    check_plan(plan);
  }
  PlanRequest request = request_of("2bw", 8, 3);
  request.stages = 4;
  CHECK(refusal(request) ==
        "schedule 2bw: micro_batches = 3 per update is less than 4 stages; use --micro-batches 4");
  request.stages.reset();
  request.replicas = {2, 2};
  CHECK(refusal(request) ==
        "schedule 2bw: micro_batches = 3 per update is less than 2 stages times 2 replicas; "
        "use --micro-batches 4");
  request.micro_batches = 5;
  CHECK(refusal(request) ==
        "schedule 2bw: micro_batches = 5 per update is not a multiple of 2 replicas; use --micro-batches 6");
}

TEST_CASE("unequal micro-batches of a stream are priced at their own size") {
  // 5 samples in 2 micro-batches of 3 and 2 on one device: an update takes 5 * 3 ms.
  PlanRequest request = request_of("2bw", 5, 2);
  const Plan plan = planned(make_profile({{{1, 2, 0, 0, 0, 0, 0}}, {}, {1, 2, 3}}), make_cluster(1), request);
  CHECK(plan.predicted.step.count() == exactly(0.015));
}

TEST_CASE("asynchronous candidates compare with the others per mini-batch") {
  // Four even layers on four devices, 4 samples. A flush leaves a bubble; without one an update takes 4 * 3 ms.
  PlanRequest request = request_of("1f1b,2bw", 4, 4);
  request.stages = 4;
  const Plan plan = planned(even_chain(4), make_cluster(4), request);
  CHECK(plan.schedule.name == "2bw");
  CHECK(plan.predicted.step.count() == exactly(0.012));
  CHECK(plan.certificate.gap == doctest::Approx(0).epsilon(1e-9));
  // auto tries it with --allow-async only.
  request.schedule = "auto";
  request.stages = 4;
  CHECK(planned(even_chain(4), make_cluster(4), request).schedule.weight_policy == WeightPolicy::flush);
  request.allow_async = true;
  CHECK(planned(even_chain(4), make_cluster(4), request).schedule.name == "2bw");
}

TEST_CASE("where stashing does not fit, two buffers may") {
  // Four stages: stashing keeps 3 older versions on the first, 6000 + 400 bytes; two buffers 4000 + 400.
  PlanRequest request = request_of("pipedream", 4, 1);
  request.stages = 4;
  request.memory_limit = Bytes(5000);
  const Profile profile = even_chain(4);
  CHECK(std::holds_alternative<Infeasible>(make_plan(profile, make_cluster(4), request)));
  request.schedule = "2bw";
  request.micro_batches = 4;
  CHECK(planned(profile, make_cluster(4), request).predicted.step.count() == exactly(0.012));
}

TEST_CASE("shapes that a schedule does not have are refused by name") {
  PlanRequest request = request_of("data-parallel", 4, 4);
  request.stages = 2;
  CHECK(refusal(request) ==
        "schedule data-parallel runs the whole model on every worker, found 2 stages; leave "
        "the stages out, or plan with 1f1b");
  request = request_of("dapple-pa", 4, 4);
  request.replicas = {2, 1};
  CHECK(refusal(request) ==
        "schedule dapple-pa splits micro-batches over replicas, which pp-run does not; leave "
        "--replicas out, or plan with 1f1b");
  request.schedule = "hybrid";
  CHECK(refusal(request) ==
        "schedule hybrid under weight policy flush has the same number of replicas on every "
        "stage, found 2-1");
  request = request_of("vertical-sync", 4, 1);
  request.replicas = {2, 1};
  CHECK(refusal(request) ==
        "schedule vertical-sync under weight policy vertical_sync has no replicas; leave "
        "--replicas out, or use --weight-policy stash");
  request.replicas.clear();
  request.window = WindowRule::wide;
  CHECK(refusal(request) ==
        "schedule vertical-sync under weight policy vertical_sync needs the windows of win; "
        "leave --window out");
  request = request_of("spectrain", 4, 1);
  request.replicas = {2, 1};
  CHECK(refusal(request) ==
        "schedule spectrain under weight policy predict has no replicas; leave --replicas out, or use "
        "--weight-policy stash");
  CHECK(refusal(request_of("vertical-sync", 4, 4))
            .starts_with("schedule vertical-sync updates after every micro-batch: micro_batches must be 1"));
}

TEST_CASE(
    "a stream of frames: three stages of two layers take 2 ms and 4 ms each, so a frame comes every 6 ms") {
  const Plan plan = planned(even_chain(6), make_cluster(3), request_of("partime", 1, 1));
  CHECK(plan.stages.size() == 3);
  CHECK(plan.predicted.step.count() == exactly(6e-3));
  CHECK(windows_of(plan) == std::vector<int>{1, 1, 1});
  CHECK(to_text(plan.workers[0].program.stream->prologue) == "F0.0 F0.1 F0.2 F0.3");
  CHECK(to_text(plan.workers[2].program.stream->body) == "F2.2 B2.2 U2");
  check_plan(plan);
  for (const WorkerPrediction& worker :
       plan.predicted.workers)  // 1000 bytes a layer, three times, and one frame
    CHECK(worker.memory.peak == Bytes(2 * 3000 + 2 * 100));
  PlanRequest replicated = request_of("partime", 1, 1);
  replicated.replicas = {2, 1};
  CHECK(refusal(replicated) == "schedule partime runs 1 worker per stage; leave --replicas out");
  Plan crooked = plan;
  crooked.workers[1].program.stream->prologue.pop_back();
  CHECK_THROWS_AS(check_plan(crooked), Error);
}

TEST_CASE("replicas around a server work side by side: two of them halve the time of a mini-batch") {
  // Six layers, 3 ms a sample, four samples: 72 ms. Their 6000 bytes go to the server and come back in 12 ms;
  // hogwild's replicas have one memory.
  const Cluster slow = make_cluster(2, 0, 1e6);
  for (const std::string schedule : {"downpour", "ssp", "hogwild"}) {
    const Plan plan = planned(even_chain(6), slow, request_of(schedule, 4, 1));
    REQUIRE(plan.workers.size() == 2);
    CHECK(plan.predicted.step.count() == exactly(schedule == "hogwild" ? 36e-3 : 42e-3));
    CHECK(plan.certificate.objective.count() == exactly(plan.predicted.step.count()));
    CHECK(plan.certificate.lower_bound.count() == exactly(plan.predicted.step.count()));
    CHECK(to_text(plan.workers[1].program.stream->body) == "F0.1 B0.1 U0");
    check_plan(plan);
    PlanRequest cut = request_of(schedule, 4, 1);
    cut.stages = 2;
    CHECK(refusal(cut) ==
          "schedule " + schedule +
              " runs the whole model on every worker, found 2 stages; leave the stages out, or plan "
              "with 1f1b");
  }
  const Plan plan = planned(even_chain(6), slow, request_of("parameter-server", 4, 2));
  CHECK(plan.predicted.step.count() == exactly(48e-3));
  CHECK(plan.certificate.objective.count() == exactly(48e-3));
  CHECK(to_text(plan.workers[1].program.program) == "F0.1 B0.1 U0");
}

TEST_CASE("the way to a parameter server counts: all at once, in turns, or as long as its port is busy") {
  // The same at 100 kB/s, 60 ms each way, and three of four replicas that go it.
  Cluster slow = make_cluster(4, 0, 1e5);
  const auto request_for = [](const std::string& schedule, int micro_batches) {
    PlanRequest request = request_of(schedule, 4, micro_batches);
    request.force_units = true;
    return request;
  };
  const auto step = [&](const std::string& schedule, int micro_batches) {
    PlanRequest request = request_for(schedule, micro_batches);
    request.replicas = {4};
    return planned(even_chain(6), slow, request).predicted.step.count();
  };
  CHECK(step("downpour", 1) == exactly((72e-3 + 120e-3) / 4));
  CHECK(step("parameter-server", 4) == exactly(18e-3 + 2 * 180e-3));
  slow.levels.front().duplex = Duplex::half;  // 360 ms of the port in each round, of which nobody waits for 72
  CHECK(step("downpour", 1) == exactly(360e-3 / 4));
  CHECK(step("parameter-server", 4) == exactly(18e-3 + 2 * 180e-3));
  CHECK(step("hogwild", 1) == exactly(72e-3 / 4));
  CHECK(planned(even_chain(6), slow, request_for("parameter-server", 4)).workers.size() == 1);
}

TEST_CASE("hogwild's replicas are on one node") {
  Cluster cluster = make_cluster(2);
  cluster.devices[1].node = "other";
  const auto refused = [&](const std::string& schedule) {
    try {
      make_plan(even_chain(6), cluster, request_of(schedule, 4, 1));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(
      refused("hogwild") ==
      "schedule hogwild: its replicas change the same memory without a lock, and the cluster has 2 nodes; give "
      "the devices of one, or plan with downpour");
  CHECK(refused("downpour") == "");
}

TEST_CASE("schedules without plans say why and what to use") {
  const std::string simulate = " (pp-plan simulate --schedule runs it)";
  for (const char* name : {"inference", "generation"}) {
    CHECK(refusal(request_of(name, 4, 4)) ==
          "schedule " + std::string(name) +
              " has no plans: it does not train; plan with 1f1b, pp-run evaluates through the stages of any "
              "plan" +
              simulate);
  }
}

TEST_CASE("a sweep has a row for every planned schedule") {
  SweepSpec spec;
  spec.clusters = {make_cluster(2)};
  for (const ScheduleRow& row : schedule_table())
    if (row.no_plan.empty() && row.chunks == Chunks::one && row.generate != nullptr)
      spec.schedules.emplace_back(row.name);
  spec.micro_batches = {1, 4};
  spec.mini_batches = {4};
  std::map<std::pair<std::string, int>, double> steps;
  for (const SweepRow& row : sweep(even_chain(4), spec)) {
    const auto* figures = std::get_if<SweepFigures>(&row.result);
    steps[{row.schedule, row.micro_batches}] = figures != nullptr ? figures->step.count() : 0;
  }
  // Four layers of 3 ms per sample on two devices, 4 samples: 24 ms without a bubble, and 4 us for replicas to
  // reduce 4000 bytes at 1 MB/ms.
  for (const char* name : {"pipedream", "vertical-sync", "spectrain"}) {
    CHECK(steps.at({name, 1}) == exactly(0.024));
    CHECK(steps.at({name, 4}) == 0);  // one micro-batch per update
  }
  for (const char* name : {"data-parallel", "hybrid"}) CHECK(steps.at({name, 4}) == exactly(0.024004));
  for (const char* name : {"2bw", "macrobatch"}) {
    CHECK(steps.at({name, 4}) == exactly(0.024));
    CHECK(steps.at({name, 1}) == exactly(0.048));  // one stage
  }
  CHECK(steps.at({"dapple-pa", 4}) == steps.at({"dapple-pb", 4}));
  CHECK(steps.at({"naive", 4}) == 0);
}

TEST_SUITE_END();

}  // namespace pp::plan::shapes_test
