#include <random>
#include <set>

#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::link_all;
using test::makespan;
using test::times;
using test::transfers;
using test::written;

/// Two stages with two replicas each: workers 0 and 1, then 2 and 3; F = 1, B = 2, both directions take 1 s.
SimulationInput two_pairs(std::vector<int> cards) {
  SimulationInput input = equal_stages(program_set({"gpipe", {2, 2}, 2, WindowRule::win, {}}));
  input.edges = {{StageId{0}, StageId{1}, Bytes(1000), Bytes(1000)}};
  link_all(input, {BytesPerSecond(1000), Seconds(0)});
  input.cards = std::move(cards);
  return input;
}

SimulationInput on_cards(SimulationInput input, std::vector<int> cards, int per_node) {
  input.cards = std::move(cards);
  input.cards_per_node = per_node;
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

  TEST_CASE("all-reduces over one card follow each other, and each has its own where nodes have two") {
    // Worker 0 and 2 on node 0, 1 and 3 on node 1: F0 0-1, F1 1-2, B1 2-4, B0 4-6. Of 8 s each, the all-reduce
    // of stage 1 begins at 4; that of stage 0 could at 6.
    SimulationInput input = equal_stages(program_set({"gpipe", {2, 2}, 2, WindowRule::win, {}}));
    for (StageCosts& stage : input.stages) stage.all_reduce = Seconds(8);
    input.all_reduce_overlap = 0;
    input.cards = {0, 1, 0, 1};
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 4-6, AR0 6-20, U0 20-20");
    CHECK(times(simulate(input), 2) == "F1.0 1-2, B1.0 2-4, AR1 4-12, U1 12-12");
    CHECK(makespan(on_cards(input, {0, 2, 1, 3}, 2)) == 14);
    // Within a node they go over no card.
    CHECK(makespan(on_cards(input, {0, 0, 0, 0}, 1)) == 14);
    // The second one begins behind the last backward alone, but ends no earlier for that.
    input.all_reduce_overlap = 1;
    CHECK(times(simulate(input), 2) == "F1.0 1-2, B1.0 2-4, AR1 4-10, U1 10-10");
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 4-6, AR0 6-18, U0 18-18");
  }

  TEST_CASE("messages pass an all-reduce on their card, which takes as much longer") {
    // Stage 1 on nodes 0 and 1, stages 0 and 2 on nodes 0 and 1: the all-reduce of stage 1 begins at 10, when
    // B1.1 ends. The gradient of B1.1 leaves node 1 from 10 to 11 and that of B1.0 does not leave node 0.
    SimulationInput input = equal_stages(
        written({"F0.0 F0.1 B0.0 B0.1 U0", "F1.0 B1.0 AR1 U1", "F1.1 B1.1 AR1 U1", "F2.0 B2.0 F2.1 B2.1 U2"},
                {{0}, {1, 2}, {3}}, 2));
    input.edges = {{StageId{0}, StageId{1}, Bytes(0), Bytes(1000)}};
    link_all(input, {BytesPerSecond(1000), Seconds(0)});
    input.stages[1].all_reduce = Seconds(4);
    input.all_reduce_overlap = 0;
    input.cards = {0, 0, 1, 1};
    CHECK(transfers(simulate(input)).find("B1.1 2>0 10-11") != std::string::npos);
    CHECK(times(simulate(input), 1).ends_with("AR1 10-15, U1 15-15"));
    input.cards = {2, 0, 4, 6};  // node 0 has cards 0 to 3: each of the four workers has its own
    input.cards_per_node = 4;
    CHECK(times(simulate(input), 1).ends_with("AR1 10-15, U1 15-15"));  // worker 2 sends both
    input.cards = {2, 0, 4, 6};
    input.cards_per_node = 8;  // one node
    CHECK(times(simulate(input), 1).ends_with("AR1 10-14, U1 14-14"));
  }

  TEST_CASE("no card carries more than its bandwidth: messages and all-reduces fit into the step") {
    std::mt19937 random(43);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    int all_reduces_bind = 0;
    for (int trial = 0; trial < 300; ++trial) {
      const std::vector<int> replicas{draw(1, 3), draw(1, 3), draw(1, 3)};
      SimulationInput input =
          equal_stages(program_set({trial % 2 == 0 ? "gpipe" : "1f1b", replicas, 6, WindowRule::win, {}}));
      for (StageCosts& stage : input.stages) stage.all_reduce = Seconds(draw(0, 12));
      for (int s = 0; s < 2; ++s)
        input.edges.push_back({StageId{s}, StageId{s + 1}, Bytes(draw(0, 2000)), Bytes(draw(0, 2000))});
      link_all(input, {BytesPerSecond(1000), Seconds(0)});
      input.all_reduce_overlap = draw(0, 2) / 2.0;
      input.cards_per_node = draw(1, 2);
      const int cards = 2 * input.cards_per_node;
      for (std::size_t w = 0; w < input.programs.workers.size(); ++w) input.cards.push_back(draw(0, cards - 1));
      const SimulationResult result = simulate(input);
      const auto node = [&](WorkerId w) { return input.cards[pp::index(w)] / input.cards_per_node; };
      std::vector<double> out(at(cards)), in = out, sums = out;
      for (const MessageEvent& message : result.messages) {
        if (node(message.from) == node(message.to)) continue;
        const double seconds = static_cast<double>(message.bytes.value) / 1000;
        out[at(input.cards[pp::index(message.from)])] += seconds;
        in[at(input.cards[pp::index(message.to)])] += seconds;
      }
      for (std::size_t s = 0; s < input.stages.size(); ++s) {
        std::set<int> used, nodes;
        for (const WorkerId w : input.programs.stage_workers[s])
          used.insert(input.cards[pp::index(w)]), nodes.insert(node(w));
        for (const int card : used) sums[at(card)] += nodes.size() > 1 ? input.stages[s].all_reduce.count() : 0;
      }
      const double step = result.makespan.count();
      for (std::size_t card = 0; card < sums.size(); ++card) {
        CAPTURE(trial);
        CHECK(std::max(out[card], in[card]) + sums[card] <= step * (1 + 1e-12));
      }
      all_reduces_bind += makespan(on_cards(input, std::vector<int>(input.cards.size(), 0), 1)) < step;
    }
    CHECK(all_reduces_bind > 100);
  }

  TEST_CASE("cards for other workers are refused") {
    CHECK_THROWS_WITH_AS(simulate(two_pairs({0, 1})), "simulation: 2 cards, expected 4", Error);
  }
}

}  // namespace
}  // namespace pp::plan
