// A list of schedules is the best of what each of them gives alone, and its bound the lowest of theirs.
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/schedule_pairs");

namespace pp::plan::schedule_pairs_test {
namespace {

struct Found {
  double step, bound;
  double alone;  ///< the bound, also where no plan is found: it may not know that nothing fits
};

/// To rounding, infinity included.
bool is_same(double a, double b) { return a == b || std::abs(a - b) <= 1e-10 * std::abs(b); }

/// Nothing: the schedule refuses the request.
std::optional<Found> found(const Profile& profile, const Cluster& cluster, PlanRequest request,
                           const std::string& schedule) {
  request.schedule = schedule;
  try {
    const SearchOutcome outcome = test::searched(profile, cluster, request);
    const bool any = !outcome.ranked.empty();
    return Found{test::step_of(outcome), any ? outcome.bound : std::numeric_limits<double>::infinity(),
                 outcome.bound};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return std::nullopt;
  }
}

/// Four uneven layers with weights, and halves of the backward that add up to less than it.
Profile split_profile() {
  Profile profile = test::make_profile({{{1, 4, 2'000'000, 500'000, 1'000'000, 0, 0},
                                         {2, 5, 1'000'000, 300'000, 2'000'000, 300'000, 0},
                                         {4, 6, 0, 800'000, 1'500'000, 0, 200'000},
                                         {1, 2, 3'000'000, 100'000, 1'000'000, 0, 0}},
                                        {},
                                        {1, 2}});
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) {
      point.input_gradient = TimeStat{.median = 0.5 * point.backward.median};
      point.weight_gradient = TimeStat{.median = 0.4 * point.backward.median};
    }
  }
  return profile;
}

/// Plans every ordered pair of the rows that have plans alone. How many there were.
int check_pairs(const Cluster& cluster, const PlanRequest& request) {
  const Profile profile = split_profile();
  std::map<std::string, Found> alone;
  for (const ScheduleRow& row : schedule_table()) {
    if (!row.no_plan.empty() || row.source == ProgramSource::file) continue;
    if (const auto one = found(profile, cluster, request, std::string(row.name))) alone.emplace(row.name, *one);
  }
  for (const auto& [first, a] : alone) {
    for (const auto& [second, b] : alone) {
      if (first == second) continue;
      CAPTURE(first);
      CAPTURE(second);
      const auto both = found(profile, cluster, request, std::string(first).append(",").append(second));
      REQUIRE(both);
      CHECK(is_same(both->step, std::min(a.step, b.step)));
      CHECK(both->bound <= std::min(a.bound, b.bound) * (1 + 1e-10));
      CHECK(both->bound >= std::min(a.alone, b.alone) * (1 - 1e-10));
    }
  }
  return static_cast<int>(alone.size());
}

PlanRequest request_of(int mini_batch) {
  PlanRequest request;
  request.mini_batch = mini_batch;
  request.swap_bandwidth = BytesPerSecond(1e9);
  return request;
}

}  // namespace

TEST_CASE("every ordered pair of schedules: the better plan of the two and the lower of their bounds") {
  CHECK(check_pairs(test::make_cluster(2), request_of(2)) > 15);
}

TEST_CASE("the same within a memory limit") {
  PlanRequest request = request_of(2);
  request.memory_limit = Bytes(17'000'000);
  CHECK(check_pairs(test::make_cluster(2), request) > 15);
  request.recompute = RecomputeMode::automatic;
  CHECK(check_pairs(test::make_cluster(2), request) > 15);
}

TEST_CASE("the same on devices that differ") {
  Cluster cluster = test::make_cluster(3);
  cluster.devices[1].speed = 2;
  CHECK(check_pairs(cluster, request_of(2)) > 10);
}

}  // namespace pp::plan::schedule_pairs_test

TEST_SUITE_END();
