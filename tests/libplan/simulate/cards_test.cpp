#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::link_all;
using test::times;
using test::transfers;

/// Two stages with two replicas each: workers 0 and 1, then 2 and 3; F = 1, B = 2, both directions take 1 s.
SimulationInput two_pairs(std::vector<int> cards) {
  SimulationInput input = equal_stages(program_set({"gpipe", {2, 2}, 2, WindowRule::win, {}}));
  input.edges = {{StageId{0}, StageId{1}, Bytes(1000), Bytes(1000)}};
  link_all(input, {BytesPerSecond(1000), Seconds(0)});
  input.cards = std::move(cards);
  return input;
}

TEST_SUITE("libplan/simulate/cards") {
  TEST_CASE("replicas of one node send one after the other through its card, each direction for itself") {
    const SimulationResult result = simulate(two_pairs({0, 0, 1, 1}));
    // Both forwards end at 1. Worker 3 gets its tensor at 3, not 2; its gradient leaves when B1.1 ends at 6,
    // while that of worker 2 has left at 5.
    CHECK(transfers(result) == "F0.0 0>2 1-2, F0.1 1>3 2-3, B1.0 2>0 5-6, B1.1 3>1 6-7");
    CHECK(times(result, 3) == "F1.1 3-4, B1.1 4-6, AR1 6-6, U1 6-6");
  }

  TEST_CASE("workers of one node exchange without its card, and without cards every worker has its own port") {
    const std::string apart = "F0.0 0>2 1-2, F0.1 1>3 1-2, B1.0 2>0 5-6, B1.1 3>1 5-6";
    CHECK(transfers(simulate(two_pairs({0, 1, 0, 1}))) == apart);
    CHECK(transfers(simulate(two_pairs({}))) == apart);
  }

  TEST_CASE("a step sends all its micro-batches through the card, however many replicas share it") {
    // Eight micro-batches of 3 s a message: the last arrives after 1 + 8*3, then F and B of the stage behind.
    SimulationInput input = equal_stages(program_set({"gpipe", {2, 2}, 8, WindowRule::win, {}}));
    input.edges = {{StageId{0}, StageId{1}, Bytes(3000), Bytes(0), 1, 0}};
    link_all(input, {BytesPerSecond(1000), Seconds(0)});
    input.cards = {0, 0, 1, 1};
    const std::vector<MessageEvent> messages = simulate(input).messages;
    CHECK(messages.size() == 8);
    CHECK(messages.back().end == Seconds(25));
  }

  TEST_CASE("cards for other workers are refused") {
    CHECK_THROWS_WITH_AS(simulate(two_pairs({0, 1})), "simulation: 2 cards, expected 4", Error);
  }
}

}  // namespace
}  // namespace pp::plan
