// What messages ask of the devices changes plans.
#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libplan/search/planner.h"
#include "tests/libplan/report/explained.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/transport");

namespace pp::plan::transport_test {
namespace {

using test::check_says;
using test::check_silent;
using test::explained;
using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  return std::get<Plan>(make_plan(profile, cluster, request));
}

/// No replicas.
PlanRequest straight(const std::string& schedule, int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  request.schedule = schedule;
  request.max_replicas = 1;
  return request;
}

/// 2, 1 and 1 ms forward, twice that backward: a cut behind layer a balances, one behind b is cheaper to cross.
Profile dear_balance(std::int64_t bytes) {
  return make_profile(
      {{{2, 4, 0, bytes, 0, 0, 0}, {1, 2, 0, 250'000, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
}

std::size_t first_stage(const Plan& plan) { return plan.stages.front().layers.size(); }

}  // namespace

TEST_CASE("dear messages: fewer cuts") {
  // Two layers of 1 + 2 ms, four micro-batches. On one device 4 * 6 = 24 ms; on two, whose messages cost c
  // each, 5 * (3 + 2 c).
  const Profile profile = make_profile({{{1, 2, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  const auto with_cost = [&](double seconds) {
    Cluster cluster = make_cluster(2);
    cluster.levels[0].message_cost = Seconds(seconds);
    return planned(profile, cluster, straight("gpipe", 4));
  };
  CHECK(with_cost(0).predicted.step.count() == exactly(0.015));
  const Plan cheap = with_cost(0.0005);
  CHECK(cheap.stages.size() == 2);
  CHECK(cheap.predicted.step.count() == exactly(0.020));
  const Plan dear = with_cost(0.001);  // 25 ms
  CHECK(dear.stages.size() == 1);
  CHECK(dear.predicted.step.count() == exactly(0.024));
}

TEST_CASE("transfers that do not pass beside the work: another cut") {
  PlanRequest request = straight("gpipe", 8);
  request.stages = 2;
  const Profile profile = dear_balance(2'000'000);
  Cluster cluster = make_cluster(2);
  // Behind a: F 2 on both, B 4 on both; 2 MB are 2 ms on the way. 7 * 6 + 2 + 2 + 2 + 4 + 2 + 4.
  const Plan beside = planned(profile, cluster, request);
  CHECK(first_stage(beside) == 1);
  CHECK(beside.predicted.step.count() == exactly(0.058));
  // Without overlap every F and B there takes 2 ms longer, and nothing is left between them: 7 * 10 + 8 + 12.
  // Behind b: F 3.25, B 6.25 in front, 1.25 and 2.25 behind: 7 * 9.5 + 3.25 + 1.25 + 2.25 + 6.25.
  cluster.levels[0].overlap = 0;
  const Plan kept = planned(profile, cluster, request);
  CHECK(first_stage(kept) == 2);
  CHECK(kept.predicted.step.count() == exactly(0.0795));
  request.cuts = {1};
  CHECK(planned(profile, cluster, request).predicted.step.count() == exactly(0.090));
}

TEST_CASE("one port for both directions: another cut") {
  PlanRequest request = straight("1f1b", 12);
  request.stages = 2;
  // Behind a 5 ms there and 5 ms back per micro-batch, beside 6 ms of work; behind b 9 ms of work.
  const Profile profile = dear_balance(5'000'000);
  Cluster cluster = make_cluster(2);
  CHECK(first_stage(planned(profile, cluster, request)) == 1);
  cluster.levels[0].duplex = Duplex::half;
  const Plan half = planned(profile, cluster, request);
  CHECK(first_stage(half) == 2);
  request.cuts = {1};
  CHECK(planned(profile, cluster, request).predicted.step > half.predicted.step);
}

TEST_CASE("the all-reduce overlaps as measured of the outermost level, or as the request says") {
  // A layer of 1 + 2 ms, and behind it one of 4 MB of weights and no time, whose gradient is complete first;
  // one micro-batch on each of two devices: a ring of 4 ms behind 3 ms of work.
  const Profile profile = make_profile({{{1, 2, 0, 0, 0, 0, 0}, {0, 0, 4'000'000, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(2);
  request.schedule = "gpipe";
  request.replicas = {2};
  Cluster cluster = make_cluster(2);
  CHECK(planned(profile, cluster, request).predicted.step.count() == exactly(0.007));
  check_silent(explained(profile, cluster, request), "All-reduce:");
  cluster.levels[0].all_reduce = {BytesPerSecond(1e9), Seconds(0), 0, {}, 0.5};
  const Plan measured = planned(profile, cluster, request);
  CHECK(measured.predicted.all_reduce_overlap == 0.5);
  CHECK(measured.predicted.step.count() == exactly(0.006));
  CHECK(measured.certificate.lower_bound.count() == exactly(0.006));
  CHECK((predict(measured, profile, cluster_of(measured)) == measured.predicted));
  check_says(explained(profile, cluster, request),
             "All-reduce: runs beside 50.0 % of the last backward, as measured of the outermost level.\n");
  request.all_reduce_overlap = 1;
  CHECK(planned(profile, cluster, request).predicted.step.count() == exactly(0.005));
  check_says(explained(profile, cluster, request),
             "All-reduce: runs beside 100.0 % of the last backward, as --all-reduce-overlap says.\n");
  // In front, where its gradient is complete at the end, nothing hides.
  const Profile turned = make_profile({{{0, 0, 4'000'000, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  CHECK(planned(turned, cluster, request).predicted.step.count() == exactly(0.007));
  request.all_reduce_overlap = 1.5;
  CHECK_THROWS_WITH_AS(planned(profile, cluster, request),
                       "all_reduce_overlap = 1.500000 is not a share of the last backward; give 0 to 1", Error);
}

TEST_CASE("an explanation says what messages ask of the devices, and which port is busiest") {
  PlanRequest request = straight("gpipe", 8);
  request.stages = 2;
  const Profile profile = dear_balance(2'000'000);
  Cluster cluster = make_cluster(2);
  check_silent(explained(profile, cluster, request), "Messages of level");
  cluster.levels[0].message_cost = Seconds(2e-5);
  cluster.levels[0].overlap = 0.9;
  cluster.levels[0].duplex = Duplex::half;
  const Explanation why = explained(profile, cluster, request);
  check_says(why,
             "Messages of level flat: each tensor keeps both devices for 20 us; 90.0 % of a transfer "
             "passes beside the devices' work, the rest keeps both; a port serves one direction at a "
             "time.\n");
  check_says(why, "  the link of worker 0 is busy 32 ms, ");  // 8 * (2 + 2) ms
}

}  // namespace pp::plan::transport_test

TEST_SUITE_END();
