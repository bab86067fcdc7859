#include "libplan/report/explain.h"
#include "libplan/answer/make_plan.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/index.h"
#include "tests/libplan/report/explained.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/report/explain");

namespace pp::plan::explain_test {
namespace {

using test::check_says;
using test::check_silent;
using test::explained;
using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest request_of(int mini_batch, int micro_batches) {
  PlanRequest request;
  request.mini_batch = mini_batch;
  request.micro_batches = micro_batches;
  request.schedule = "1f1b";
  return request;
}

Profile even_chain(int layers, std::int64_t parameters = 0, std::int64_t output = 0) {
  return make_profile({std::vector<test::LayerRow>(at(layers), {1, 2, parameters, output, 0, 0, 0}), {}, {1}});
}

/// Every time of the profile: 16th and 84th percentile `share` below and above the median.
Profile with_spread(Profile profile, double share) {
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) {
      for (TimeStat* time : {&point.forward, &point.backward})
        *time = {time->median, (1 - share) * time->median, (1 + share) * time->median, 10};
    }
  }
  return profile;
}

/// Layer a takes twice as long as b; 8 samples in 4 micro-batches: stages of 2 + 4 and 1 + 2 ms. With windows 2
/// and 1, by the papers' rule; a third micro-batch in flight would hide the wait.
const Profile& uneven() {
  static const Profile profile = make_profile({{{1, 2, 0, 0, 0, 0, 0}, {0.5, 1, 0, 0, 0, 0, 0}}, {}, {1, 2}});
  return profile;
}
PlanRequest two_stages() {
  PlanRequest request = request_of(8, 4);
  request.stages = 2;
  request.window = WindowRule::win;
  return request;
}

}  // namespace

TEST_CASE("the expected step stands beside that of the medians where it is known") {
  Explanation why = explained(uneven(), make_cluster(2), two_stages());
  check_silent(why, "Expected:");
  why.expected_step = 1.019 * why.step;  // of 25 ms
  check_says(
      why,
      "\nExpected: 25.5 ms per step on average, 1.9 % more than with every operation at its median: they "
      "vary, and who waits for several waits for the slowest.\n");
  CHECK(to_json(why)["expected_step_s"].get<double>() == exactly(0.025475));
  why.expected_step = 0.99 * why.step;
  check_says(why, "\nExpected: 24.8 ms per step on average, 1.0 % less than with every");
  why.expected_step = why.step;
  check_says(why, "\nExpected: 25 ms per step on average, as with every");
}

TEST_CASE("data parallelism stands beside a pipeline: its step, and what its all-reduce takes of it") {
  // Four layers of 1 + 2 ms and 10 MB; four micro-batches. Two stages: (4 + 1) * 6 ms. Two replicas: two
  // micro-batches of 12 ms each, then 40 MB at 1 GB/s.
  const Profile profile = even_chain(4, 10'000'000);
  const Explanation why = explained(profile, make_cluster(2), request_of(4, 4));
  REQUIRE(why.step.count() == exactly(0.030));
  check_says(
      why, "\nData parallelism: 64 ms per step, of which all-reduces are 40 ms; 24 ms if they were hidden.\n");
  CHECK(to_json(why)["data_parallelism"]["links_s"].get<double>() == exactly(0.040));
  PlanRequest one = request_of(4, 4);
  one.stages = 1;
  check_silent(explained(profile, make_cluster(2), one), "Data parallelism");
  check_says(explained(profile, make_cluster(2, 70'000'000), request_of(4, 4)),
             "Data parallelism: does not fit: ");
}

TEST_CASE("an uneven pipeline: the slow stage decides, the other has half its time to spare") {
  // Stage 0 runs F0 F1 B0 F2 B1 F3 B2 B3 of 2 and 4 ms: 24 ms. It waits once, from 4 to 5, for F0 B0 of stage 1
  // (2 to 5), so a step takes 25 ms, and the next begins the same way.
  const Explanation why = explained(uneven(), make_cluster(2), two_stages());
  CHECK(why.step.count() == exactly(0.025));
  CHECK(why.parts.compute.count() == exactly(0.024));
  CHECK(why.parts.links == Seconds{});
  CHECK(why.parts.bubble.count() == exactly(0.001));
  CHECK(why.limit == Limit::compute);
  check_says(why,
             "Chosen: 1f1b, layers 1|1 on replicas 1-1, 4 micro-batches: 25 ms per step, the fastest of all");
  check_says(why, "Bottleneck: stage 0 (a), busy 24 ms of every step (96.0 %).\n");
  check_says(why, "  stage 1 (b) is busy 12 ms, 12 ms (50.0 %) less\n");
  check_says(why,
             "Where the step goes:\n"
             "  compute of the busiest worker: 24 ms (96.0 %)\n"
             "  messages and all-reduces: 0 s (0.0 %)\n"
             "  fill, drain and waiting for other stages: 1 ms (4.0 %)\n"
             "Compute limits it: the largest part is the busiest worker's own work.\n");
  check_says(why, "Runner-up: none with other stages or micro-batches is listed.\n");
  check_silent(why, "Hint");
}

TEST_CASE(
    "each change is planned again: half-sized micro-batches halve the wait, links without bytes do not "
    "matter") {
  const Explanation why = explained(uneven(), make_cluster(2), two_stages());
  REQUIRE(why.changes.size() == 3);
  CHECK(why.changes[1] == WhatIf{"twice the bandwidth", why.step, why.plan});
  check_says(why, "  twice the bandwidth          25 ms, no change\n");
  // 8 micro-batches of 1 + 2 and 0.5 + 1 ms: 24 ms and a wait of 0.5 ms.
  check_says(why,
             "  twice the micro-batches (8)  24.5 ms, 2.0 % faster: 1f1b, layers 1|1 on replicas 1-1, 8 "
             "micro-batches\n");
  REQUIRE(why.changes[0].step);
  CHECK(why.changes[0].change == "one more device (3 in all)");
  PlanRequest request = two_stages();
  const auto three = make_plan(uneven(), make_cluster(3), request);
  CHECK(*why.changes[0].step == std::get<Plan>(three).predicted.step);
  CHECK(*why.changes[0].step < why.step);
}

TEST_CASE("a change that the request does not admit is left out") {
  PlanRequest request = request_of(4, 4);  // 8 micro-batches of half a sample
  request.stages = 2;
  const Explanation why = explained(even_chain(2), make_cluster(2), request);
  for (const WhatIf& one : why.changes) CHECK_FALSE(one.change.starts_with("twice the micro-batches"));
  CHECK(why.changes.size() == 2);
}

TEST_CASE("what the time limit leaves no time for is said to be left out") {
  // Two layers of 3 ms on two devices of 1 GB: the plan is there, then time is up.
  const Profile profile = even_chain(2);
  Cluster cluster = make_cluster(2);
  PlanRequest request = request_of(4, 4);
  request.memory_limit = Bytes(1'000'000'000);
  const Plan plan = std::get<Plan>(make_plan(profile, cluster, request));
  request.observer = [](const SearchProgress&) { return false; };
  const Explanation why = explain(plan, profile, cluster, request);
  REQUIRE(why.changes.size() == 3);
  for (const WhatIf& one : why.changes) CHECK(one.left_out);
  check_says(why, "Whether memory limits it is not known: the time limit came first.\n");
  check_says(why, "  one more device (3 in all)   left out: the time limit came first\n");
  CHECK(to_json(why).at("changes").at(0).at("left_out") == true);
  // As long as it goes on, nothing is left out.
  request.observer = [](const SearchProgress&) { return true; };
  check_silent(explain(plan, profile, cluster, request), "time limit");
}

TEST_CASE("a change under which nothing fits any more says so") {
  // gpipe keeps all M micro-batches, 1 MB a stage and micro-batch whatever its size: 2 MB for two, 4 for four.
  Profile profile = make_profile({{{1, 2, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1, 2}});
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) point.saved = Bytes(1'000'000);
  }
  PlanRequest request = request_of(4, 2);
  request.schedule = "gpipe";
  request.stages = 2;
  request.memory_limit = Bytes(2'000'000);
  const Explanation why = explained(profile, make_cluster(2), request);
  CHECK(why.limit == Limit::compute);
  check_says(why, "  twice the micro-batches (4)  no plan fits\n");
}

TEST_CASE("slow links are the bottleneck, and more bandwidth helps") {
  // 10 MB at 1 MB/ms are 10 ms a message; four of them each way: ports are busy 40 ms, stages 4 * 3 = 12.
  PlanRequest request = request_of(4, 4);
  request.stages = 2;
  const Explanation why = explained(even_chain(2, 0, 10'000'000), make_cluster(2), request);
  check_says(why, "Bottleneck: the link into worker 0, busy 40 ms of every step");
  check_says(why, "  stage 1 (b) is busy 12 ms, 28 ms (70.0 %) less\n");
  CHECK(why.parts.compute.count() == exactly(0.012));
  CHECK((why.parts.compute + why.parts.links + why.parts.bubble).count() == exactly(why.step.count()));
  CHECK(why.limit == Limit::links);
  check_says(why, "The links limit it: the largest part is messages and all-reduces.\n");
  CHECK(*why.changes[1].step < why.step);
}

TEST_CASE("fewer micro-batches than stages: the bubble limits, and a hint says so") {
  // Four stages of 1 + 2 ms, two micro-batches: (M + K - 1) * 3 = 15 ms, of which a stage computes 6.
  PlanRequest request = request_of(2, 2);
  request.stages = 4;
  const Explanation why = explained(even_chain(4), make_cluster(4), request);
  CHECK(why.step.count() == exactly(0.015));
  CHECK(why.parts.bubble.count() == exactly(0.009));
  check_says(why, "The bubble limits it: the largest part is fill, drain and waiting.\n");
  check_says(why, "Hint: 2 micro-batches cannot keep 4 stages busy; take at least 4, or fewer stages.\n");
}

TEST_CASE("memory limits where the plan without limits is faster") {
  // 3 MB of state a layer: data parallelism needs 12 MB and takes 4 * 12 + 4 (all-reduce of 4 MB) = 52 ms, two
  // stages need 6 MB and take (8 + 1) * 6 = 54 ms. 10 % more than 6.5 MB is still too little.
  PlanRequest request = request_of(8, 8);
  request.memory_limit = Bytes(6'500'000);
  const Explanation why = explained(even_chain(4, 1'000'000), make_cluster(2), request);
  CHECK(why.step.count() == exactly(0.054));
  CHECK(why.limit == Limit::memory);
  check_says(why, "Memory limits it: with room for everything the best plan takes 52 ms per step.\n");
  check_says(why, "  10 % more memory            54 ms, no change\n");

  request.memory_limit = Bytes(13'000'000);
  const Explanation roomy = explained(even_chain(4, 1'000'000), make_cluster(2), request);
  CHECK(roomy.step.count() == exactly(0.052));
  check_silent(roomy, "emory");
}

TEST_CASE("the runner-up: how much slower, and in what") {
  // As above without a limit: data parallelism computes 48 ms and reduces for 4; the pipeline computes 48 ms
  // and fills and drains for 6.
  const Explanation why = explained(even_chain(4, 1'000'000), make_cluster(2), request_of(8, 8));
  check_says(why,
             "Runner-up: 1f1b, layers 2|2 on replicas 1-1, 8 micro-batches: 54 ms, 3.8 % slower; it loses 6 ms "
             "more to fill, drain and waiting.\n");
  check_silent(why, "Hint");

  const Explanation noisy =
      explained(with_spread(even_chain(4, 1'000'000), 0.05), make_cluster(2), request_of(8, 8));
  check_says(noisy,
             "Hint: the runner-up is 3.8 % behind, but the measured times spread by 5.0 %; only a run can tell "
             "which is faster.\n");
  check_silent(explained(with_spread(even_chain(4, 1'000'000), 0.03), make_cluster(2), request_of(8, 8)),
               "Hint");
}

TEST_CASE("a gap of 0 is a proof, any other is named") {
  // Four layers of 3 ms on four devices, data parallel: 8 * 12 / 4 = 24 ms is all there is to share.
  check_says(explained(even_chain(4), make_cluster(4), request_of(8, 8)),
             "How sure: proven, no plan of the searched family takes less than 24 ms.\n");
  Explanation why = explained(even_chain(4), make_cluster(4), request_of(8, 8));
  why.certificate.lower_bound = Seconds(0.020);
  why.certificate.gap = 0.2;
  check_says(why,
             "How sure: no plan of the searched family takes less than 20 ms; this one takes 20.0 % more.\n");
}

TEST_CASE("an asynchronous plan has no fill and drain, whatever the number of micro-batches") {
  PlanRequest request = request_of(1, 1);
  request.schedule = "pipedream";
  request.stages = 2;
  // Two stages of 3 ms: one micro-batch every 3 ms.
  const Explanation why = explained(even_chain(2), make_cluster(2), request);
  CHECK(why.step.count() == exactly(0.003));
  CHECK(why.parts.compute.count() == exactly(0.003));
  check_silent(why, "cannot keep");
}

TEST_CASE("the recorded spread is that of the nearest profiled size below") {
  Profile profile = with_spread(uneven(), 0.1);
  for (LayerProfile& layer : profile.layers)
    layer.points[1].forward.samples = layer.points[1].backward.samples = 0;
  CHECK(*recorded_spread(profile, 1) == exactly(0.1));
  CHECK_FALSE(recorded_spread(profile, 2).has_value());
  CHECK_FALSE(recorded_spread(uneven(), 1).has_value());
}

TEST_CASE("the JSON has the figures of the text, and both are the same from run to run") {
  const Explanation why = explained(even_chain(4, 1'000'000), make_cluster(2), request_of(8, 8));
  CHECK(why == explained(even_chain(4, 1'000'000), make_cluster(2), request_of(8, 8)));
  const Json json = to_json(why);
  CHECK(json.at("bottleneck") == "stage 0 (a .. d)");
  CHECK(json.at("limited_by") == "compute");
  CHECK(json.at("parts").at("links_s").get<double>() == exactly(0.004));
  CHECK(json.at("runner_up").at("step_s").get<double>() == exactly(0.054));
  CHECK(json.at("changes").size() == why.changes.size());
  CHECK(json.at("changes")[1].at("difference").get<double>() == exactly(50.0 / 52 - 1));
}

}  // namespace pp::plan::explain_test

TEST_SUITE_END();
