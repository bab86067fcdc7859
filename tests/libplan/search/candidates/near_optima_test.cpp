// Every partition within a limit, against enumeration.
#include "libplan/search/candidates/near_optima.h"

#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/near_optima");

namespace pp::plan::near_optima_test {
namespace {

using test::Random;
using test::TextbookCost;

constexpr std::size_t kAll = 100'000;

struct Instance {
  SearchSpace space;
  TextbookCost cost;
};

Instance random_instance(Random& random) {
  SearchSpace space;
  space.layers = random.integer(1, 6);
  space.devices = random.integer(1, 5);
  if (random.integer(0, 3) == 0) space.max_replicas = random.integer(1, 3);
  const int stages = random.integer(1, 4);
  if (const int kind = random.integer(0, 3); kind < 2)
    (kind == 0 ? space.max_stages : space.exact_stages) = stages;
  if (random.integer(0, 3) == 0) {
    space.cut_allowed.assign(at(space.layers) + 1, 1);
    for (char& allowed : space.cut_allowed) allowed = static_cast<char>(random.integer(0, 3) > 0);
  }
  TextbookCost cost{random.values(space.layers, 9, true), random.values(space.layers, 9, true),
                    random.values(space.layers + 1, 9, true)};
  if (random.integer(0, 1) == 0) cost.with_memory(random.values(space.layers, 9, true), random.integer(10, 60));
  if (random.integer(0, 1) == 0) cost.with_fill(random.values(space.layers + 1, 5, true));
  return {space, cost};
}

double objective(const Partition& partition, const Instance& instance) {
  double fill = 0;
  for (const int cut : cuts_of(partition)) fill += instance.cost.fill(cut, {});
  return largest_load(partition, instance.space.layers, instance.cost) + fill;
}

std::vector<Partition> enumerated(const Instance& instance, double limit) {
  std::vector<Partition> found;
  test::for_each_partition(instance.space, [&](const Partition& partition) {
    if (objective(partition, instance) <= limit && fits_everywhere(partition, instance.cost))
      found.push_back(partition);
  });
  std::ranges::sort(found);
  return found;
}

std::optional<std::vector<Partition>> searched(const Instance& instance, double limit, std::size_t most) {
  auto found = partitions_within(instance.space, instance.cost, limit, most);
  if (found) std::ranges::sort(*found);
  return found;
}

}  // namespace

TEST_CASE("random instances: all within the limit, and no others") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const Instance instance = random_instance(random);
    const double limit = random.integer(0, 40);
    const std::vector<Partition> all = enumerated(instance, limit);
    CHECK(searched(instance, limit, kAll) == all);
    if (all.empty()) continue;
    CHECK(searched(instance, limit, all.size()) == all);
    CHECK_FALSE(searched(instance, limit, all.size() - 1).has_value());
  }
}

TEST_CASE("where there are too many the limit moves to as many as are wanted, the best among them") {
  Random random(2);
  int moved = 0;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const Instance instance = random_instance(random);
    const double least = search_bottleneck(instance.space, instance.cost).value;
    const std::vector<Partition> all = enumerated(instance, 40);
    std::vector<Partition> near = near_optima(instance.space, instance.cost, std::min(least, 40.0) - 1, 40, 8);
    if (all.size() <= 8) {
      std::ranges::sort(near);
      CHECK(near == all);
      continue;
    }
    REQUIRE(near.size() <= 8);
    if (near.empty()) continue;  // more than that tie for the least
    ++moved;
    double furthest = 0;
    for (const Partition& partition : near) furthest = std::max(furthest, objective(partition, instance));
    CHECK(near.size() == enumerated(instance, furthest).size());  // none as good was left out
  }
  CHECK(moved > 100);
}

}  // namespace pp::plan::near_optima_test

TEST_SUITE_END();
