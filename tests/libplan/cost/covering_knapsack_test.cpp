#include "libplan/cost/recompute.h"

#include <limits>

#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/covering_knapsack");

namespace pp::plan::covering_knapsack_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double by_enumeration(const std::vector<CoverItem>& items, double bytes) {
  double least = kInfinity;
  for (unsigned chosen = 0; chosen < (1U << items.size()); ++chosen) {
    double seconds = 0, saved = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if ((chosen >> i & 1) == 0) continue;
      seconds += items[i].seconds;
      saved += items[i].bytes;
    }
    if (saved >= bytes) least = std::min(least, seconds);
  }
  return least;
}

}  // namespace

TEST_CASE("the best item per byte need not be part of the best choice") {
  // 10 bytes are missing. Rates 1/6 and 2/10: greedy takes the first (6 bytes), then needs the second: 3 s.
  const std::vector<CoverItem> items{{1, 6}, {2, 10}};
  CHECK(cover_greedily(items, 10).seconds == 3);
  CHECK(cover_exactly(items, 10).seconds == 2);
  CHECK(cover_exactly(items, 10).items == std::vector<std::size_t>{1});
  CHECK(cover_greedily(items, 10).items == std::vector<std::size_t>{0, 1});
}

TEST_CASE("nothing missing costs nothing, more than all items save is impossible") {
  const std::vector<CoverItem> items{{1, 6}};
  CHECK(cover_exactly(items, 0).seconds == 0);
  CHECK(cover_exactly(items, 7).seconds == kInfinity);
  CHECK(cover_greedily(items, 7).seconds == kInfinity);
  CHECK(cover_exactly({}, 1).seconds == kInfinity);
}

TEST_CASE("equals enumeration, equal items included; greedy is never less") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    std::vector<CoverItem> items;
    double all = 0;
    for (int i = random.integer(0, 8); i > 0; --i) {
      items.push_back({static_cast<double>(random.integer(0, 4)), static_cast<double>(random.integer(1, 5))});
      all += items.back().bytes;
    }
    const double bytes = random.integer(0, static_cast<int>(all) + 1);
    CHECK(cover_exactly(items, bytes).seconds == by_enumeration(items, bytes));
    CHECK(cover_greedily(items, bytes).seconds >= by_enumeration(items, bytes));
    double made_up = 0;
    for (const std::size_t i : cover_exactly(items, bytes).items) made_up += items[i].bytes;
    CHECK((made_up >= bytes || bytes > all));
    CHECK(cover_exactly(items, bytes, by_enumeration(items, bytes)).seconds == kInfinity);
  }
}

TEST_CASE("forty equal items are counted, not tried one by one") {
  CHECK(cover_exactly(std::vector<CoverItem>(40, {1, 3}), 61).seconds == 21);  // ceil(61 / 3)
}

}  // namespace pp::plan::covering_knapsack_test

TEST_SUITE_END();
