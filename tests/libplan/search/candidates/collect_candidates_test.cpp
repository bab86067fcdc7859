// What is left out because it cannot win, against searches of every case alone.
#include "libplan/search/candidates/collect_candidates.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "libplan/request/plan_request.h"
#include "libplan/request/request.h"
#include "libplan/search/candidates/cases.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/collect_candidates");

namespace pp::plan {
namespace {

/// Of uneven layers, four sizes of micro-batches.
Profile drawn_profile(test::Random& random, int layers) {
  test::ProfileSpec spec{.layers = {}, .edges = {}, .sizes = {1, 2, 4, 8}};
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({static_cast<double>(random.integer(1, 9)),
                           static_cast<double>(random.integer(1, 19)), random.integer(0, 4'000'000),
                           random.integer(1, 400'000), random.integer(1, 3'000'000)});
  }
  return test::make_profile(spec);
}

/// The least bound and the least objective of all cases, each searched in full.
struct Least {
  double bound = std::numeric_limits<double>::infinity(), objective = bound;
  int cases = 0;
};
Least search_all(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                 const PlanRequest& request) {
  Least least;
  for_each_case(profile, cluster, graph, request, [&](const PlanCase& one) {
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    const CandidateList list = find_candidates(search_case(one, memory, cluster, request), one.space);
    least.bound = std::min(least.bound, list.bound);
    for (const Candidate& candidate : list.candidates)
      least.objective = std::min(least.objective, candidate.estimate);
    ++least.cases;
  });
  return least;
}

}  // namespace

TEST_CASE(
    "on a machine that is not small, what is left out changes neither the bound nor the least objective") {
  test::Random random(45);
  constexpr int kLayers = 20, kDevices = 29;
  REQUIRE_FALSE(is_small(kLayers, kDevices));
  int fewer = 0;
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    const Profile profile = drawn_profile(random, kLayers);
    const std::int64_t memory = round % 2 == 0 ? 0 : 60'000'000;
    const Cluster cluster = test::make_cluster(kDevices, memory);
    PlanRequest request;
    request.mini_batch = 64;
    request.schedule = "1f1b";
    const PlanGraph graph = planned_graph(profile, request);
    const Least least = search_all(profile, cluster, graph, request);
    const Collected found = collect_candidates(profile, cluster, graph, request, {}, Depth::plain);
    REQUIRE(!found.finalists.empty());
    CHECK(least.cases == 4);
    CHECK(found.bound == least.bound);
    CHECK(std::ranges::min(found.finalists, {}, &Finalist::estimate).estimate == least.objective);
    std::vector<int> sizes;
    for (const Finalist& finalist : found.finalists) {
      if (std::ranges::count(sizes, finalist.micro_batches) == 0) sizes.push_back(finalist.micro_batches);
    }
    fewer += std::ssize(sizes) < least.cases ? 1 : 0;
  }
  CHECK(fewer > 0);  // or nothing was left out
}

// gpipe holds all micro-batches of the step, 1f1b a few.
TEST_CASE("where nothing fits on all devices fewer are not searched, and what fits is found on fewer, too") {
  test::Random random(47);
  constexpr int kLayers = 20, kDevices = 29;
  const Profile profile = drawn_profile(random, kLayers);
  PlanRequest request;
  request.mini_batch = 512;
  request.micro_batches = 512;
  request.schedule = "gpipe,1f1b";
  const PlanGraph graph = planned_graph(profile, request);
  const auto collect = [&](int devices, NothingFits known) {
    return collect_candidates(profile, test::make_cluster(devices, 60'000'000), graph, request,
                              {.nothing_fits = std::move(known)}, Depth::plain);
  };
  const Collected all = collect(kDevices, {});
  REQUIRE(all.nothing_fits.size() == 1);
  const auto& [found, devices] = *all.nothing_fits.begin();
  CHECK(found.schedule->name == "gpipe");
  CHECK(devices == kDevices);
  const auto names = [](const Collected& collected) {
    std::map<std::string_view, std::size_t> counts;
    for (const Finalist& finalist : collected.finalists) ++counts[finalist.schedule->name];
    return counts;
  };
  const Collected less = collect(kDevices - 1, all.nothing_fits), alone = collect(kDevices - 1, {});
  CHECK(names(less) == names(alone));
  CHECK(names(less).contains("1f1b"));
  CHECK_FALSE(names(less).contains("gpipe"));
  CHECK(less.nothing_fits == all.nothing_fits);
}

// Their objectives are those of a straight pipeline, so that they rank stages and not numbers of micro-batches.
TEST_CASE("schedules that place their stages are searched at every micro-batch count") {
  test::Random random(46);
  constexpr int kLayers = 20, kDevices = 32;
  REQUIRE_FALSE(is_small(kLayers, kDevices));
  const Profile profile = drawn_profile(random, kLayers);
  const Cluster cluster = test::make_cluster(kDevices, 0);
  PlanRequest request;
  request.mini_batch = 64;
  request.schedule = "interleaved";
  const Collected found =
      collect_candidates(profile, cluster, planned_graph(profile, request), request, {}, Depth::plain);
  std::map<int, double> least;  // objective of each count
  for (const Finalist& finalist : found.finalists) {
    double& known = least.try_emplace(finalist.micro_batches, finalist.estimate).first->second;
    known = std::min(known, finalist.estimate);
  }
  // Pipelines of P workers, 32 / P of them side by side, have M P / 32 micro-batches each, a multiple of P: 32
  // and 64 in all.
  REQUIRE(least.size() == 2);
  CHECK(least.contains(32));
  CHECK(least.contains(64));
  const auto [better, worse] = std::minmax(least[32], least[64]);
  CHECK(worse > 1.05 * better);  // or nothing could have been left out
}

}  // namespace pp::plan

TEST_SUITE_END();
