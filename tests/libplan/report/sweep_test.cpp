#include "libplan/report/sweep.h"
#include "libplan/answer/make_plan.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/search/profiles.h"

#include "tests/support/doctest.h"

namespace pp::plan::sweep_test {
namespace {

using test::make_cluster;
using test::make_profile;

/// Four layers of 1 ms forward and 2 ms backward per sample, without weights or tensors.
Profile even_chain() {
  return make_profile({std::vector<test::LayerRow>(4, {1, 2, 0, 0, 0, 0, 0}), {}, {1, 2, 4, 8}});
}

/// Uneven in everything, so that combinations differ.
Profile uneven_chain() {
  return make_profile({{{2, 3, 4'000'000, 900'000, 500'000, 0, 0},
                        {1, 4, 0, 700'000, 900'000, 0, 0},
                        {5, 6, 1'000'000, 200'000, 300'000, 0, 0},
                        {1, 1, 9'000'000, 100'000, 200'000, 0, 0},
                        {3, 5, 2'000'000, 400'000, 100'000, 0, 0}},
                       {},
                       {1, 2, 4, 8}});
}

SweepSpec spec_of(std::vector<int> devices, std::vector<std::string> schedules,
                  std::vector<int> micro_batches) {
  SweepSpec spec;
  for (const int count : devices) spec.clusters.push_back(make_cluster(count));
  spec.schedules = std::move(schedules);
  spec.micro_batches = std::move(micro_batches);
  spec.mini_batches = {8};
  return spec;
}

SweepSpec wide_spec(int threads) {
  SweepSpec spec = spec_of({1, 2, 4}, {"gpipe", "1f1b", "zb-h1", "pipedream"}, {1, 2, 3, 8, 9});
  spec.threads = threads;
  return spec;
}

const SweepFailure& failure_of(const SweepRow& row) {
  const auto* failure = std::get_if<SweepFailure>(&row.result);
  REQUIRE(failure != nullptr);
  return *failure;
}

ErrorKind kind_of_error(const Profile& profile, const SweepSpec& spec) {
  try {
    sweep(profile, spec);
  } catch (const Error& e) {
    return e.kind();
  }
  return ErrorKind::internal;
}

TEST_SUITE("libplan/report/sweep") {
  TEST_CASE("of several sweeps each combination has the least step, of equals the first") {
    const auto row = [](int degree, std::optional<double> step) {
      SweepRow one{.devices = 4, .schedule = "1f1b", .micro_batches = 2, .result = SweepFailure{}};
      one.tensor_degree = degree;
      if (step) {
        SweepFigures figures;
        figures.step = Seconds(*step);
        one.result = figures;
      }
      return one;
    };
    const std::vector<std::vector<SweepRow>> sweeps{
        {row(1, 2.0), row(1, 3.0), row(1, std::nullopt), row(1, std::nullopt)},
        {row(2, 1.0), row(2, 3.0), row(2, 5.0), row(2, std::nullopt)}};
    std::vector<int> degrees;
    for (const SweepRow& best : best_rows(sweeps)) degrees.push_back(best.tensor_degree);
    CHECK(degrees == std::vector{2, 1, 2, 1});
  }

  TEST_CASE("rows stand by machine, schedule and micro-batches, each with its best plan") {
    const std::vector<SweepRow> rows = sweep(even_chain(), spec_of({1, 2}, {"gpipe", "1f1b"}, {8, 1}));
    REQUIRE(rows.size() == 8);
    // Eight samples of 4 * 3 ms: 96 ms on one device. Two replicas take four micro-batches each: 48 ms and
    // never idle. One micro-batch cannot be shared, and a second device in line would only wait.
    const double expected_ms[] = {96, 96, 96, 96, 48, 96, 48, 96};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(i);
      CHECK(rows[i].devices == (i < 4 ? 1 : 2));
      CHECK(rows[i].schedule == (i % 4 < 2 ? "gpipe" : "1f1b"));
      CHECK(rows[i].micro_batches == (i % 2 == 0 ? 8 : 1));
      const SweepFigures* figures = rows[i].figures();
      REQUIRE(figures != nullptr);
      CHECK(figures->step.count() == doctest::Approx(expected_ms[i] / 1e3));
      CHECK(figures->samples_per_s == doctest::Approx(8e3 / expected_ms[i]));
      CHECK(figures->bubble_fraction == doctest::Approx(0));
      CHECK(figures->stages == "4");
      CHECK(figures->replicas == (expected_ms[i] < 96 ? "2" : "1"));
    }
  }

  // Twelve milliseconds a sample on one device, half of it on each of two.
  TEST_CASE("each mini-batch has rows of its own, behind those of the machine") {
    SweepSpec spec = spec_of({1, 2}, {"1f1b"}, {4});
    spec.mini_batches = {8, 16};
    const std::vector<SweepRow> rows = sweep(even_chain(), spec);
    REQUIRE(rows.size() == 4);
    const double expected_ms[] = {96, 192, 48, 96};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CAPTURE(i);
      CHECK(rows[i].mini_batch == (i % 2 == 0 ? 8 : 16));
      REQUIRE(rows[i].figures() != nullptr);
      CHECK(rows[i].figures()->step.count() == doctest::Approx(expected_ms[i] / 1e3));
    }
  }

  TEST_CASE("a row is what the planner answers alone") {
    const SweepSpec spec = spec_of({4}, {"zb-h1"}, {4});
    const std::vector<SweepRow> rows = sweep(uneven_chain(), spec);
    PlanRequest request = spec.request;
    request.mini_batch = 8;
    request.schedule = "zb-h1";
    request.micro_batches = 4;
    const auto alone = make_plan(uneven_chain(), spec.clusters.front(), request);
    const Plan& plan = std::get<Plan>(alone);
    REQUIRE(rows.size() == 1);
    const SweepFigures* figures = rows.front().figures();
    REQUIRE(figures != nullptr);
    CHECK(figures->step == plan.predicted.step);
    CHECK(figures->stages == stages_text(plan));
    CHECK(figures->gap == plan.certificate.gap);
    Bytes peak;
    for (const WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
    CHECK(figures->peak == peak);
  }

  TEST_CASE("the rows and their bytes do not depend on the number of threads") {
    const std::vector<SweepRow> alone = sweep(uneven_chain(), wide_spec(1));
    CHECK(alone.size() == 3 * 4 * 5);
    for (const int threads : {2, 4, 100}) {
      const std::vector<SweepRow> together = sweep(uneven_chain(), wide_spec(threads));
      CHECK(together == alone);
      CHECK(sweep_csv(together) == sweep_csv(alone));
      CHECK(to_json(together).dump() == to_json(alone).dump());
    }
  }

  TEST_CASE("what a schedule or the mini-batch refuses is a row with the message") {
    const std::vector<SweepRow> rows = sweep(even_chain(), spec_of({2}, {"pipedream", "gpipe"}, {2, 9}));
    REQUIRE(rows.size() == 4);
    CHECK(status_of(rows[0]) == "refused");
    CHECK(
        failure_of(rows[0]).reason ==
        "schedule pipedream updates after every micro-batch: micro_batches must be 1; leave it out and set the "
        "mini-batch to the size of one micro-batch");
    CHECK(status_of(rows[2]) == "planned");
    CHECK(status_of(rows[3]) == "refused");
    CHECK(failure_of(rows[3]).reason == "micro_batches = 9 exceeds the mini-batch of 8 samples");
  }

  TEST_CASE("what does not fit is a row that says who lacks memory") {
    SweepSpec spec = spec_of({2}, {"1f1b"}, {4});
    spec.request.memory_limit = Bytes(1'000'000);
    const std::vector<SweepRow> rows = sweep(uneven_chain(), spec);
    REQUIRE(rows.size() == 1);
    CHECK(status_of(rows.front()) == "infeasible");
    const auto alone = make_plan(uneven_chain(), spec.clusters.front(), [&] {
      PlanRequest request = spec.request;
      request.mini_batch = 8;
      request.schedule = "1f1b";
      request.micro_batches = 4;
      return request;
    }());
    CHECK(failure_of(rows.front()).reason == std::get<Infeasible>(alone).reason);
  }

  TEST_CASE("what no combination could answer is refused at once") {
    CHECK_THROWS_WITH_AS(sweep(even_chain(), spec_of({2}, {"gpipe", "2f2b"}, {2})),
                         doctest::Contains("schedule: unknown name \"2f2b\"; use one of"), Error);
    SweepSpec spec = spec_of({2}, {"gpipe"}, {2});
    spec.mini_batches.clear();
    CHECK_THROWS_WITH_AS(sweep(even_chain(), spec),
                         "mini_batch = 0: the samples per optimizer update are not given; add --mini-batch N",
                         Error);
  }

  TEST_CASE("an error of the profile leaves the sweep, whatever the number of threads") {
    Profile broken = even_chain();
    broken.layers.pop_back();
    CHECK(kind_of_error(broken, wide_spec(1)) == ErrorKind::data);
    CHECK(kind_of_error(broken, wide_spec(4)) == ErrorKind::data);
  }

  TEST_CASE("the front of time and money has no row that another beats in one and meets in the other") {
    // Time a sample and device seconds a sample: 1/10 and 0.1; 1/18 and 0.111; 1/18 and 0.222; 1/30 and 0.133;
    // none; as the first.
    const auto row = [](int devices, double samples_per_s) {
      SweepFigures figures;
      figures.samples_per_s = samples_per_s;
      return SweepRow{devices, "1f1b", 1, figures};
    };
    const std::vector<SweepRow> rows{row(1, 10),
                                     row(2, 18),
                                     row(4, 18),
                                     row(4, 30),
                                     {8, "1f1b", 1, SweepFailure{SweepFailure::Kind::infeasible, "no room"}},
                                     row(1, 10)};
    CHECK(pareto_front(rows) == std::vector{true, true, false, true, false, false});
    // Twice as fast on twice as many costs the same: the slower one is beaten.
    CHECK(pareto_front(std::vector{row(1, 10), row(2, 20)}) == std::vector{false, true});
  }

  TEST_CASE("CSV has one record per row, quoted where needed; JSON leaves out what a row does not have") {
    Throughput words;  // 32 samples of 8 tokens a second on two devices: 15.625 a million at 7.2 an hour
    words.devices = 2;
    words.samples_per_s = 32;
    words.tokens_per_sample = 8;
    words.model_flops_per_s = 300;
    words.peak_flops_per_s = 600;
    words.price_per_hour = 7.2;
    const std::vector<SweepRow> rows{
        {2, "1f1b", 4, SweepFigures{"7|5", "1-1", Seconds(0.25), 32, 0.125, Bytes(4096), 0.5, words}},
        {2, "zb-h1", 8, SweepFailure{SweepFailure::Kind::refused, "\"x\" is 1, not 2"}},
        {4, "gpipe", 1, SweepFailure{SweepFailure::Kind::infeasible, "no room"}}};
    CHECK(
        sweep_csv(rows) ==
        "devices,schedule,micro_batches,status,stages,replicas,step_s,samples_per_s,bubble_fraction,peak_bytes,"
        "gap,reason,tokens_per_s,model_flops_per_s_per_device,mfu,hfu,cost_per_million,duration_s,cost,front,"
        "tensor_degree,cores_per_device,estimated,mini_batch\n"
        "2,1f1b,4,planned,7|5,1-1,0.25,32.0,0.125,4096,0.5,,256.0,150.0,0.25,,15.625,,,true,1,,false,0\n"
        "2,zb-h1,8,refused,,,,,,,,\"\"\"x\"\" is 1, not 2\",,,,,,,,false,1,,false,0\n"
        "4,gpipe,1,infeasible,,,,,,,,no room,,,,,,,,false,1,,false,0\n");
    CHECK(to_json(rows)[2] == Json{{"devices", 4},
                                   {"schedule", "gpipe"},
                                   {"micro_batches", 1},
                                   {"status", "infeasible"},
                                   {"reason", "no room"},
                                   {"front", false},
                                   {"tensor_degree", 1},
                                   {"estimated", false},
                                   {"mini_batch", 0}});
    CHECK(to_json(rows)[0].at("step_s") == 0.25);
  }
}

}  // namespace
}  // namespace pp::plan::sweep_test
