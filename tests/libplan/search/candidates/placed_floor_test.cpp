// The floor of placed schedules against what the simulator says about every partition.
#include "libplan/search/candidates/placed_floor.h"

#include <limits>

#include "libplan/answer/make_plan.h"
#include "libplan/search/candidates/placed.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/placed_floor");

namespace pp::plan::placed_floor_test {
namespace {

using test::make_cluster;
using test::Random;

constexpr std::int64_t kKb = 1000;

Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({random.integer(1, 8) * 0.5, random.integer(1, 8) * 1.0,
                           random.integer(0, 3) * 100 * kKb, random.integer(0, 4) * 50 * kKb,
                           random.integer(0, 6) * 100 * kKb});
  }
  return test::make_profile(spec);
}

Plan plan_of(const Profile& profile, const PlanRequest& request, int workers) {
  auto result = make_plan(profile, make_cluster(workers), request);
  REQUIRE(std::holds_alternative<Plan>(result));
  return std::get<Plan>(std::move(result));
}

std::int64_t peak_of(const Plan& plan) {
  Bytes peak;
  for (const WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  return peak.value;
}

/// All cuts of `layers` layers into `stages` stages.
std::vector<std::vector<int>> all_cuts(int layers, int stages) {
  std::vector<std::vector<int>> result;
  for (unsigned mask = 0; mask < 1U << (layers - 1); ++mask) {
    std::vector<int> cuts;
    for (int k = 1; k < layers; ++k) {
      if ((mask >> (k - 1) & 1U) != 0) cuts.push_back(k);
    }
    if (static_cast<int>(cuts.size()) == stages - 1) result.push_back(cuts);
  }
  return result;
}

struct Example {
  const char* schedule;
  int stages;
};

TEST_CASE("no partition is faster or holds less than its floor, and the floor is reached") {
  constexpr int kLayers = 6, kWorkers = 2;
  Random random(77);
  int tight = 0;
  for (const Example& example :
       {Example{"zb-h1", 2}, Example{"zb-h2", 2}, Example{"auto-zb", 2}, Example{"zb-v", 4},
        Example{"interleaved", 4}, Example{"looped-bfs", 4}, Example{"chimera", 2}}) {
    for (int round = 0; round < 6; ++round) {
      CAPTURE(example.schedule);
      const Profile profile = random_profile(random, kLayers);
      PlanRequest request;
      request.mini_batch = request.micro_batches.emplace(4);
      request.schedule = example.schedule;
      for (const std::vector<int>& cuts : all_cuts(kLayers, example.stages)) {
        request.cuts = cuts;
        request.memory_limit.reset();
        const Plan plan = plan_of(profile, request, kWorkers);
        const std::int64_t peak = peak_of(plan);
        request.memory_limit = Bytes(peak);
        const Cluster cluster = make_cluster(kWorkers);
        const Link link = fastest_links(cluster).messages;
        for_each_case(profile, cluster, make_graph(profile), request, [&](const PlanCase& one) {
          const Schedule schedule = placed_schedule(request, one.schedule, 4, kWorkers).value();
          const PlacedFloor floor(one, schedule, 1, peak, link);
          const PlacedFloor below(one, schedule, 1, peak - 1, link);
          bool all_below = true;
          for (int s = 0, begin = 0; s < example.stages; ++s) {
            const int end = s + 1 < example.stages ? cuts[at(s)] : kLayers;
            const int later = example.stages - 1 - s;
            CHECK(floor.fits(begin, end, {later, 1}));
            CHECK(floor.stage(begin, end, {later, 1}) <= plan.predicted.step.count() * (1 + 1e-9));
            all_below &= below.fits(begin, end, {later, 1});
            begin = end;
          }
          tight += all_below ? 0 : 1;
        });
      }
    }
  }
  CHECK(tight > 0);  // the floor is the peak itself for some
}

/// Whether the workers have room for `stages` under a limit, as the floor says of each case.
bool has_room(const Profile& profile, const PlanRequest& request, int workers, int stages, std::int64_t bytes) {
  bool room = true;
  for_each_case(profile, make_cluster(workers), make_graph(profile), request, [&](const PlanCase& one) {
    const Schedule schedule = placed_schedule(request, one.schedule, one.batch.micro_batches, workers).value();
    SearchSpace space = one.space;
    space.exact_stages = stages;
    room = room && PlacedFloor(one, schedule, 1, bytes, {}).has_room_again(space);
  });
  return room;
}

TEST_CASE("what stages keep to run again has room wherever a plan fits") {
  constexpr int kLayers = 6, kWorkers = 2;
  Random random(78);
  for (const Example& example : {Example{"interleaved", 4}, Example{"looped-bfs", 4}, Example{"chimera", 2}}) {
    for (int round = 0; round < 8; ++round) {
      CAPTURE(example.schedule);
      const Profile profile = random_profile(random, kLayers);
      PlanRequest request;
      request.mini_batch = request.micro_batches.emplace(4);
      request.schedule = example.schedule;
      request.recompute = round % 2 == 0 ? RecomputeMode::always : RecomputeMode::automatic;
      for (const std::vector<int>& cuts : all_cuts(kLayers, example.stages)) {
        request.cuts = cuts;
        request.memory_limit.reset();
        const std::int64_t peak = peak_of(plan_of(profile, request, kWorkers));
        request.memory_limit = Bytes(peak);
        CHECK(has_room(profile, request, kWorkers, example.stages, peak));
      }
    }
  }
}

TEST_CASE("micro-batches whose inputs alone are more than all workers hold have no room") {
  // Four layers that hand on 1 MB and save 5 MB. looped-bfs holds all 8 micro-batches in each of 4 stages: over
  // three cuts come 3 * 8 * 1 MB, so two workers of 12 MB have room, of a byte less not.
  const test::LayerRow layer{1, 2, 0, 1'000 * kKb, 5'000 * kKb};
  const Profile profile = test::make_profile({{layer, layer, layer, layer}, {}, {1}});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(8);
  request.schedule = "looped-bfs";
  request.recompute = RecomputeMode::always;
  for (const std::int64_t bytes : {12'000 * kKb, 12'000 * kKb - 1}) {
    request.memory_limit = Bytes(bytes);
    CHECK(has_room(profile, request, 2, 4, bytes) == (bytes == 12'000 * kKb));
  }
}

TEST_CASE("a placed schedule that cannot fit is left out, one that can is not") {
  // Two layers of 1 + 2 ms that save 10 MB each. zb-h1 on two workers holds two micro-batches in front and one
  // behind: 20 MB at least. Under 19 MB only one device with one micro-batch at a time is left, 10 + 10 MB: not
  // even that. Under 20 MB both are.
  const Profile profile =
      test::make_profile({{{1, 2, 0, 0, 10'000 * kKb}, {1, 2, 0, 0, 10'000 * kKb}}, {}, {1}});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.schedule = "1f1b,zb-h1";
  request.memory_limit = Bytes(19'000 * kKb);
  const auto none = make_plan(profile, make_cluster(2), request);
  REQUIRE(std::holds_alternative<Infeasible>(none));
  CHECK(std::get<Infeasible>(none).smallest_limit == Bytes(20'000 * kKb));
  request.memory_limit = Bytes(20'000 * kKb);
  const auto some = make_plan(profile, make_cluster(2), request);
  REQUIRE(std::holds_alternative<Plan>(some));
  CHECK(peak_of(std::get<Plan>(some)) == 20'000 * kKb);
}

}  // namespace
}  // namespace pp::plan::placed_floor_test

TEST_SUITE_END();
