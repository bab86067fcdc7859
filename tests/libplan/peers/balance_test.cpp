#include "libplan/peers/strategy.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/libplan/search/instances.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/balance");

namespace pp::plan::balance_test {
namespace {

using Costs = std::vector<double>;
using Lengths = std::vector<int>;

double largest_block(const Costs& costs, const Lengths& lengths) {
  double largest = 0;
  std::size_t next = 0;
  for (const int length : lengths) {
    double sum = 0;
    for (int i = 0; i < length; ++i) sum += costs[next++];
    largest = std::max(largest, sum);
  }
  return largest;
}

/// Over every choice of cuts.
double least_largest_block(const Costs& costs, int blocks) {
  double least = std::numeric_limits<double>::infinity();
  Lengths lengths;
  const std::function<void(int)> extend = [&](int left) {
    if (std::ssize(lengths) == blocks) {
      if (left == 0) least = std::min(least, largest_block(costs, lengths));
      return;
    }
    for (int length = 1; length <= left; ++length) {
      lengths.push_back(length);
      extend(left - length);
      lengths.pop_back();
    }
  };
  extend(static_cast<int>(costs.size()));
  return least;
}

}  // namespace

TEST_CASE("a block partition whose rule does not end is none") {
  // Scaled 0, 0, 0, 0, 1, 0.2: the last block of 5 has 1.2, too much beside empty ones.
  CHECK(block_partition(Costs{0, 0, 0, 0, 5, 1}, 5).empty());
  CHECK(block_partition(Costs{0, 0, 0, 0, 5, 1}, 6) == Lengths{1, 1, 1, 1, 1, 1});
}

TEST_CASE("the golden block partitions and their optima") {
  int compared = 0;
  for (const nlohmann::json& entry : pp::test::golden("block_partition")) {
    INFO(entry.at("name").get<std::string>());
    const Costs costs = entry.at("inputs").at("costs");
    const int parts = entry.at("inputs").at("parts");
    const nlohmann::json& expected = entry.at("expected");
    const Lengths blocks = block_partition(costs, parts);
    CHECK(nlohmann::json(blocks) == expected.at("block_partition_sizes"));
    CHECK(largest_block(costs, blocks) == expected.at("block_partition_max").get<double>());
    CHECK(largest_block(costs, balance_exactly(costs, parts)) == expected.at("optimum_max").get<double>());
    ++compared;
  }
  CHECK(compared == 6);
}

TEST_CASE("row 6: the exact balance equals enumeration and is never above the block partition") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const int layers = random.integer(1, 8);
    const int blocks = random.integer(1, layers);
    const Costs costs = random.values(layers, 20, seed % 2 == 0);
    const Lengths exact = balance_exactly(costs, blocks);
    REQUIRE(std::ssize(exact) == blocks);
    CHECK(largest_block(costs, exact) == doctest::Approx(least_largest_block(costs, blocks)).epsilon(1e-12));
    CHECK(largest_block(costs, block_partition(costs, blocks)) >= largest_block(costs, exact) * (1 - 1e-12));
  }
}

}  // namespace pp::plan::balance_test

TEST_SUITE_END();
