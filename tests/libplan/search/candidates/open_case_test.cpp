// Cases that are closed because they cannot win, against every case by itself.
#include "libplan/search/candidates/open_case.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "libplan/request/request.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/open_case");

namespace pp::plan {
namespace {

/// Uneven layers, four sizes of micro-batches.
Profile drawn_profile(test::Random& random, int layers) {
  test::ProfileSpec spec{.layers = {}, .edges = {}, .sizes = {1, 2, 4, 8}};
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({static_cast<double>(random.integer(1, 9)),
                           static_cast<double>(random.integer(1, 19)), random.integer(0, 4'000'000),
                           random.integer(1, 400'000), random.integer(1, 3'000'000)});
  }
  return test::make_profile(spec);
}

/// The least bound of all cases, each as dear as it gets.
double least_of_all(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                    const PlanRequest& request) {
  MachinePart part(cluster, graph, request, true);
  double least = std::numeric_limits<double>::infinity();
  part.for_each_case(profile, [&](const PlanCase& one) {
    for (const std::unique_ptr<OpenCase>& open : open_cases(part, one)) {
      double before = open->bound();
      while (open->refine(std::numeric_limits<double>::infinity())) {
        CHECK(open->bound() >= before);
        CHECK(open->proven() <= open->bound());
        before = open->bound();
      }
      least = std::min(least, open->proven());
    }
  });
  return least;
}

}  // namespace

TEST_CASE("the bound of a search is the least of all its cases, and each rises as more is asked") {
  test::Random random(45);
  constexpr int kLayers = 20, kDevices = 29;
  REQUIRE_FALSE(is_small(kLayers, kDevices));
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    const Profile profile = drawn_profile(random, kLayers);
    const Cluster cluster = test::make_cluster(kDevices, round % 2 == 0 ? 0 : 60'000'000);
    PlanRequest request;
    request.mini_batch = 64;
    request.schedule = "1f1b";
    const PlanGraph graph = planned_graph(profile, request);
    const double least = least_of_all(profile, cluster, graph, request);
    CHECK(test::searched(profile, cluster, request).bound == least);
    CHECK(least_bound(profile, cluster, graph, request, std::numeric_limits<double>::infinity()) == least);
    CHECK(least_bound(profile, cluster, graph, request, least / 2) >= least / 2);
  }
}

// gpipe holds all micro-batches of the step, 1f1b a few.
TEST_CASE("a schedule that fits nowhere takes nothing from one that does") {
  test::Random random(47);
  const Profile profile = drawn_profile(random, 20);
  const Cluster cluster = test::make_cluster(29, 60'000'000);
  PlanRequest request;
  request.mini_batch = 512;
  request.micro_batches = 512;
  request.schedule = "gpipe";
  CHECK(test::searched(profile, cluster, request).ranked.empty());
  request.schedule = "1f1b";
  const SearchOutcome alone = test::searched(profile, cluster, request);
  request.schedule = "gpipe,1f1b";
  const SearchOutcome both = test::searched(profile, cluster, request);
  REQUIRE_FALSE(both.ranked.empty());
  CHECK(test::step_of(both) == test::step_of(alone));
}

// Their objectives are those of a straight pipeline, so that they rank stages and not numbers of micro-batches.
TEST_CASE("schedules that place their stages are searched at every micro-batch count and number of chunks") {
  test::Random random(46);
  const Profile profile = drawn_profile(random, 20);
  const Cluster cluster = test::make_cluster(4, 0);
  PlanRequest request;
  request.mini_batch = 64;
  request.schedule = "interleaved";
  request.max_replicas = 1;
  const PlanGraph graph = planned_graph(profile, request);
  MachinePart part(cluster, graph, request, true);
  std::set<int> counts;
  std::set<std::size_t> stages;
  part.for_each_case(profile, [&](const PlanCase& one) {
    for (const std::unique_ptr<OpenCase>& open : open_cases(part, one)) {
      open->refine(std::numeric_limits<double>::infinity());
      for (const Finalist& finalist : open->next({})) {
        counts.insert(finalist.micro_batches);
        stages.insert(finalist.partition.size());
      }
    }
  });
  CHECK(counts == std::set{8, 16, 32, 64});
  CHECK(stages == std::set<std::size_t>{8, 12, 16, 20});
}

}  // namespace pp::plan

TEST_SUITE_END();
