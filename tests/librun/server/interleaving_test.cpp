// The order of replicas around a server, and how far one may be ahead.
#include "librun/server/interleaving.h"

#include <algorithm>
#include <set>

#include "tests/support/doctest.h"

namespace interleaving_test {

using namespace pp::run;

namespace {

enum class Leaves { at_once, when_drawn };

/// Turns of replicas with so many mini-batches each.
std::vector<int> turns(Interleaving& order, ClockTable& clocks, int each, Leaves leaves) {
  std::vector<int> begun(static_cast<std::size_t>(clocks.replicas())), all;
  std::vector<bool> within(begun.size());
  while (order.turn() != Interleaving::kNobody) {
    const int turn = order.turn();
    const auto r = static_cast<std::size_t>(turn);
    if (!within[r] && begun[r] == each) {
      order.leave(turn, clocks);
      continue;
    }
    all.push_back(turn);
    if (within[r]) {
      clocks.tick(turn);
    } else {
      CHECK(clocks.may_begin(turn));
      ++begun[r];
    }
    within[r] = !within[r];
    order.pass(clocks);
    if (leaves == Leaves::at_once && !within[r] && begun[r] == each) order.leave(turn, clocks);
  }
  return all;
}

std::vector<int> turns(std::uint64_t seed, int replicas, int each, Step bound, Leaves leaves) {
  ClockTable clocks(replicas, bound);
  Interleaving order(seed, replicas);
  return turns(order, clocks, each, leaves);
}

}  // namespace

TEST_SUITE("librun/server/interleaving") {
  TEST_CASE("every replica has two turns a mini-batch, in an order that is the seed's") {
    std::set<std::vector<int>> orders;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      const std::vector<int> found = turns(seed, 3, 5, 64, Leaves::when_drawn);
      for (int r = 0; r < 3; ++r) CHECK(std::ranges::count(found, r) == 10);
      CHECK(turns(seed, 3, 5, 64, Leaves::when_drawn) == found);
      orders.insert(found);
    }
    CHECK(orders.size() == 10);
  }

  TEST_CASE("when somebody leaves makes no difference") {
    for (std::uint64_t seed = 0; seed < 50; ++seed)
      CHECK(turns(seed, 4, 3, 2, Leaves::at_once) == turns(seed, 4, 3, 2, Leaves::when_drawn));
  }

  TEST_CASE("bound 0: between two mini-batches of one, all others have one") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<int> found = turns(seed, 3, 4, 0, Leaves::when_drawn);
      for (std::size_t clock = 0; clock < 4; ++clock) {
        for (int r = 0; r < 3; ++r)
          CHECK(std::count(found.begin() + 6 * clock, found.begin() + 6 * (clock + 1), r) == 2);
      }
    }
  }

  TEST_CASE("who begins with a later step has the draws of who restarts there") {
    ClockTable clocks(2, 64), later(2, 64);
    Interleaving order(7, 2), fresh(7, 2, /*step=*/12);
    turns(order, clocks, 6, Leaves::when_drawn);
    order.restart(12, clocks);
    CHECK(turns(order, clocks, 6, Leaves::when_drawn) == turns(fresh, later, 6, Leaves::when_drawn));
  }

  TEST_CASE("a replica may begin while it is at most the bound ahead of the slowest") {
    ClockTable clocks(3, /*bound=*/2);
    for (int i = 0; i < 2; ++i) clocks.tick(0);  // 2 0 0
    CHECK(clocks.may_begin(0));
    clocks.tick(0);  // 3 0 0
    CHECK_FALSE(clocks.may_begin(0));
    CHECK(clocks.may_begin(1));
    clocks.tick(1);  // 3 1 0: the slowest is still 2
    CHECK_FALSE(clocks.may_begin(0));
    clocks.tick(2);  // 3 1 1
    CHECK(clocks.may_begin(0));
    CHECK(clocks.least() == 1);
    CHECK(clocks.of(0) == 3);
  }

  TEST_CASE("bound 0: all in step") {
    ClockTable clocks(2, /*bound=*/0);
    clocks.tick(1);
    CHECK_FALSE(clocks.may_begin(1));
    clocks.tick(0);
    CHECK(clocks.may_begin(1));
  }

  TEST_CASE("the widest lead is that of who began, not of who finished") {
    ClockTable clocks(2, /*bound=*/1);
    clocks.begin(0), clocks.tick(0);  // 1 0
    CHECK(clocks.widest() == 0);
    clocks.begin(0), clocks.tick(0);  // began 1 ahead
    CHECK(clocks.widest() == 1);
  }
}

}  // namespace interleaving_test
