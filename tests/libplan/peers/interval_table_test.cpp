#include "libplan/peers/interval_table.h"

#include <algorithm>

#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/interval_table");

namespace pp::plan::interval_table_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Stages, cuts and permissions as plain tables, one entry for each (begin, end, machines).
class TableCost : public IntervalCost {
 public:
  TableCost(int layers, int machines) : layers_(layers), machines_(machines) {
    const std::size_t size = index(layers, layers, machines) + 1;
    whole_.assign(size, kInfinity);
    last_.assign(size, kInfinity);
    least_used_.assign(size, 0);
  }

  double whole(int begin, int end, int machines) const override { return whole_[index(begin, end, machines)]; }
  double last(int begin, int end, int machines) const override { return last_[index(begin, end, machines)]; }
  int least_used(int begin, int end, int machines) const override {
    return std::max(machines, least_used_[index(begin, end, machines)]);
  }

  std::size_t index(int begin, int end, int machines) const {
    return at((begin * (layers_ + 1) + end) * (machines_ + 1) + machines);
  }
  std::vector<double> whole_, last_;
  std::vector<int> least_used_;

 private:
  int layers_;
  int machines_;
};

/// Nothing rises or falls with anything; a fifth of the stages is forbidden.
TableCost random_costs(test::Random& random, int layers, int machines) {
  TableCost cost(layers, machines);
  for (std::size_t i = 0; i < cost.whole_.size(); ++i) {
    if (random.integer(0, 4) > 0) cost.whole_[i] = random.integer(1, 1000);
    if (random.integer(0, 4) > 0) cost.last_[i] = random.integer(1, 300);
    cost.least_used_[i] = random.integer(0, 3) == 0 ? random.integer(1, machines + 1) : 0;
  }
  return cost;
}

/// (C + 4(q-1)/q W)/q beside cuts over the replicas, the least of all stages for those without cuts in front.
TableCost chain_costs(test::Random& random, int layers, int machines) {
  const test::TextbookCost chain(random.values(layers, 20, false), random.values(layers, 15, false),
                                 random.values(layers + 1, random.integer(0, 1) * 40, false));
  TableCost cost(layers, machines);
  for (int begin = 0; begin < layers; ++begin) {
    for (int end = begin + 1; end <= layers; ++end) {
      for (int q = 1; q <= machines; ++q) {
        const std::size_t here = cost.index(begin, end, q);
        cost.whole_[here] = chain.stage(begin, end, {0, q});
        const double cuts =
            std::max(chain.cut(begin, {0, q}, CutSide::in), chain.cut(end, {0, q}, CutSide::out));
        cost.last_[here] = std::max(cost.whole_[here], cuts);
      }
    }
  }
  return cost;
}

/// The recurrence as it stands, O(N^3 m^2).
class PlainTable {
 public:
  PlainTable(const TableCost& cost, const IntervalSpace& space)
      : cost_(cost), values_(cost.whole_.size(), kInfinity) {
    for (int begin = 0; begin < space.layers; ++begin) {
      for (int end = begin + 1; end <= space.layers; ++end) {
        for (int m = 1; m <= space.machines; ++m) values_[cost.index(begin, end, m)] = solve(begin, end, m);
      }
    }
  }
  double value(int begin, int end, int machines) const { return values_[cost_.index(begin, end, machines)]; }

 private:
  double solve(int begin, int end, int machines) const {
    double best = cost_.whole(begin, end, machines);
    for (int split = begin + 1; split < end; ++split) {
      for (int q = 1; q < machines; ++q) {
        if (cost_.least_used(split, end, q) > machines) continue;
        best = std::min(best, std::max(value(begin, split, machines - q), cost_.last(split, end, q)));
      }
    }
    return best;
  }

  const TableCost& cost_;
  std::vector<double> values_;
};

void check_equal(const TableCost& cost, const IntervalSpace& space) {
  const PlainTable plain(cost, space);
  const IntervalTable table(space, cost);
  const int starts = space.all_starts ? space.layers : 1;
  for (int begin = 0; begin < starts; ++begin) {
    for (int end = begin + 1; end <= space.layers; ++end) {
      for (int m = 1; m <= space.machines; ++m) {
        const double expected = plain.value(begin, end, m);
        REQUIRE(table.value(begin, end, m) == (expected < space.bound ? expected : kInfinity));
      }
    }
  }
}

}  // namespace

TEST_CASE("costs in which nothing is monotone: bit-equal to the recurrence") {
  test::Random random(1);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const IntervalSpace space{random.integer(1, 14), random.integer(1, 6), round % 3 != 0};
    check_equal(random_costs(random, space.layers, space.machines), space);
  }
}

TEST_CASE("stages with all-reduce and cuts: bit-equal to the recurrence") {
  test::Random random(2);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const IntervalSpace space{random.integer(1, 40), random.integer(1, 8), round % 3 != 0};
    check_equal(chain_costs(random, space.layers, space.machines), space);
  }
}

TEST_CASE("a bound leaves out what does not beat it and nothing else") {
  test::Random random(3);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    IntervalSpace space{random.integer(1, 10), random.integer(1, 5), round % 2 == 0};
    const TableCost cost = random_costs(random, space.layers, space.machines);
    space.bound = random.integer(1, 500);
    check_equal(cost, space);
  }
}

}  // namespace pp::plan::interval_table_test

TEST_SUITE_END();
