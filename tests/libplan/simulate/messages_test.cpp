// Messages between workers: what delays them, the ports that they share, what they ask of the devices at both
// ends.
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::messages_test {
namespace {

using test::equal_stages;
using test::link_all;
using test::makespan;
using test::straight;
using test::times;
using test::transfers;
using test::written;

constexpr BytesPerSecond kBandwidth{1000};

StageEdge edge(int from, int to, int activation, int gradient) {
  return {StageId{from}, StageId{to}, Bytes(activation), Bytes(gradient)};
}

/// Nothing but what every tensor costs.
Link costly(double seconds) { return {.message_cost = Seconds(seconds)}; }

TEST_SUITE("libplan/simulate/messages") {
  TEST_CASE("latency delays and occupies nothing, bytes occupy the ports") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    input.edges = {edge(0, 1, 1500, 500)};
    link_all(input, {kBandwidth, Seconds(0.25)});
    // F0.0 ends at 1, F0.1 at 2. The port sends 1-2.5 and 2.5-4; arrivals 2.75 and 4.25. Worker 1: F 2.75-3.75,
    // F 4.25-5.25, B 5.25-7.25, B 7.25-9.25; gradients 7.25-7.75 and 9.25-9.75, arrivals +0.25.
    const SimulationResult result = simulate(input);
    CHECK(transfers(result) == "F0.0 0>1 1-2.5, F0.1 0>1 2.5-4, B1.0 1>0 7.25-7.75, B1.1 1>0 9.25-9.75");
    CHECK(times(result, 1) == "F1.0 2.75-3.75, F1.1 4.25-5.25, B1.0 5.25-7.25, B1.1 7.25-9.25, U1 9.25-9.25");
    CHECK(times(result, 0) == "F0.0 0-1, F0.1 1-2, B0.0 8-10, B0.1 10-12, U0 12-12");
    CHECK(result.messages[0].bytes == Bytes(1500));
    CHECK(result.messages[2].bytes == Bytes(500));
  }

  TEST_CASE("every tensor of a message pays the latency") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(0), Bytes(0), 3, 2}};
    link_all(input, {BytesPerSecond(0), Seconds(0.5)});
    CHECK(times(simulate(input), 1) == "F1.0 2.5-3.5, B1.0 3.5-5.5, U1 5.5-5.5");
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 6.5-8.5, U0 8.5-8.5");
  }

  TEST_CASE("two senders share the receiver's port, the lower micro-batch first") {
    SimulationInput input = equal_stages(program_set({"gpipe", {2, 1}, 2, WindowRule::win, {}}));
    input.edges = {edge(0, 1, 1000, 2000)};
    link_all(input, {kBandwidth, Seconds(0)});
    // Both forwards end at 1: worker 2 receives 1-2 and 2-3. B1.0 ends at 6, B1.1 at 8: its out-port sends 6-8,
    // 8-10.
    const SimulationResult result = simulate(input);
    CHECK(times(result, 2) == "F1.0 2-3, F1.1 3-4, B1.0 4-6, B1.1 6-8, U1 8-8");
    CHECK(transfers(result) == "F0.0 0>2 1-2, F0.1 1>2 2-3, B1.0 2>0 6-8, B1.1 2>1 8-10");
  }

  TEST_CASE("sending and receiving at once is free: ports are full duplex") {
    SimulationInput input = equal_stages(straight("1f1b", 2, 2));
    input.edges = {edge(0, 1, 4000, 1000)};
    link_all(input, {kBandwidth, Seconds(0)});
    // Activations 1-5 and 5-9. Worker 1: F1.0 5-6, B1.0 6-8; its gradient returns 8-9 while F0.1's tensor still
    // comes. Then F1.1 9-10, B1.1 10-12, gradient 12-13.
    CHECK(transfers(simulate(input)) == "F0.0 0>1 1-5, F0.1 0>1 5-9, B1.0 1>0 8-9, B1.1 1>0 12-13");
  }

  TEST_CASE("a skip tensor goes straight to its consumer and shares the ports") {
    SimulationInput input = equal_stages(straight("gpipe", 3, 1));
    input.edges = {edge(0, 1, 1000, 1000), edge(1, 2, 1000, 1000), edge(0, 2, 2000, 2000)};
    link_all(input, {kBandwidth, Seconds(0)});
    // F0 ends at 1: to stage 1 1-2, to stage 2 2-4. F1 2-3, its tensor waits for worker 2's in-port: 4-5. F2
    // 5-6, B2 6-8. Gradients: to stage 1 8-9, to stage 0 9-11. B1 9-11, gradient 11-12 (worker 0's in-port is
    // free at 11). B0 12-14.
    const SimulationResult result = simulate(input);
    CHECK(transfers(result) ==
          "F0.0 0>1 1-2, F0.0 0>2 2-4, F1.0 1>2 4-5, B2.0 2>1 8-9, B2.0 2>0 9-11, B1.0 1>0 11-12");
    CHECK(times(result, 0) == "F0.0 0-1, B0.0 12-14, U0 14-14");
  }

  TEST_CASE("edges of one pair travel together, and a pair without an edge keeps its order without a message") {
    SimulationInput input = equal_stages(straight("gpipe", 3, 1));
    input.edges = {edge(0, 1, 300, 0), edge(0, 1, 700, 0), edge(0, 2, 0, 0)};
    input.edges[0].gradient_tensors = input.edges[1].gradient_tensors = 0;
    link_all(input, {kBandwidth, Seconds(0.5)});
    // 0 to 1: 1000 bytes 1-2 and two latencies, so F1 starts at 3; the skip's empty tensor arrives at 1.5.
    // Nothing flows from 1 to 2: F2 starts when F1 ends. No gradient from 1 to 0, only the skip's: B2 5-7, B1
    // 7-9, B0 after both, at 9.
    const SimulationResult result = simulate(input);
    CHECK(transfers(result) == "F0.0 0>1 1-2, F0.0 0>2 1-1, B2.0 2>0 7-7");
    CHECK(times(result, 2) == "F2.0 4-5, B2.0 5-7, U2 7-7");
    CHECK(times(result, 0) == "F0.0 0-1, B0.0 9-11, U0 11-11");
  }

  TEST_CASE("bytes follow the size of the micro-batch and of the slice") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    input.edges = {edge(0, 1, 1000, 0)};
    input.micro_batch_scale = {1, 0.5};
    SimulationResult result = simulate(input);
    CHECK(result.messages[0].bytes == Bytes(1000));
    CHECK(result.messages[1].bytes == Bytes(500));

    // Halves on workers 0 and 1, thirds on 2, 3, 4: overlaps 1/3, 1/6, 1/6, 1/3.
    input = equal_stages(written(
        {"F0.0 B0.0 AR0 U0", "F0.0 B0.0 AR0 U0", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1"},
        {{0, 1}, {2, 3, 4}}, 1));
    input.edges = {edge(0, 1, 600, 600)};
    result = simulate(input);
    REQUIRE(result.messages.size() == 8);
    std::vector<std::int64_t> forward_bytes;
    for (std::size_t i = 0; i < 4; ++i) forward_bytes.push_back(result.messages[i].bytes.value);
    CHECK(forward_bytes == std::vector<std::int64_t>{200, 100, 100, 200});
    // Half a micro-batch takes half its time.
    CHECK(transfers(result).starts_with(
        "F0.0 0>2 0.5-0.5, F0.0 0>3 0.5-0.5, F0.0 1>3 0.5-0.5, F0.0 1>4 0.5-0.5, "));
  }

  TEST_CASE("both ends pay per tensor and for the share of the transfer that does not overlap") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    input.edges = {{StageId{0}, StageId{1}, Bytes(1000), Bytes(500)}};
    link_all(input, {kBandwidth, Seconds(0.25), Seconds(0.125), 0.75, Duplex::full});
    // An activation takes 1 s and asks 0.125 + 0.25 * 1 = 0.375 of both ends, so F lasts 1.375; a gradient
    // takes 0.5 s and asks 0.125 + 0.25 * 0.5 = 0.25, so B lasts 2.25. F0.0 itself ends at 1: its message is on
    // the ports 1-2 and there at 2.25, where F1.0 begins its own work, 0.375 after it began.
    const SimulationResult result = simulate(input);
    CHECK(transfers(result) ==
          "F0.0 0>1 1-2, F0.1 0>1 2.375-3.375, B1.0 1>0 6.625-7.125, B1.1 1>0 8.875-9.375");
    CHECK(times(result, 1) ==
          "F1.0 1.875-3.25, F1.1 3.25-4.625, B1.0 4.625-6.875, B1.1 6.875-9.125, U1 9.125-9.125");
    CHECK(times(result, 0) ==
          "F0.0 0-1.375, F0.1 1.375-2.75, B0.0 7.125-9.375, B0.1 9.375-11.625, U0 11.625-11.625");
    CHECK(result.busy == std::vector<Seconds>{Seconds(7.25), Seconds(7.25)});
  }

  TEST_CASE("every tensor of a message costs, without bytes too") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(0), Bytes(0), 3, 2}};
    link_all(input, costly(0.5));
    // F 1 + 3 * 0.5, B 2 + 2 * 0.5.
    CHECK(times(simulate(input), 0) == "F0.0 0-2.5, B0.0 8-11, U0 11-11");
    CHECK(times(simulate(input), 1) == "F1.0 2.5-5, B1.0 5-8, U1 8-8");
  }

  TEST_CASE("between idle workers a message is as long on its way as its latency and size say") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(1000), Bytes(1000)}};
    for (const double overlap : {1.0, 0.75, 0.5}) {
      // F 1, the message 2 s, F and B 1 + 2, the gradient 2 s, B 2: what the ends handle are parts of the 2 s.
      link_all(input, {kBandwidth, Seconds(1), Seconds(0.25), overlap, Duplex::full});
      CHECK(makespan(input) == 1 + 2 + 1 + 2 + 2 + 2);
    }
  }

  TEST_CASE("a stage in the middle receives and sends") {
    SimulationInput input = equal_stages(straight("gpipe", 3, 1));
    link_all(input, costly(1));
    // F0 0-2, F1 1 + 2, F2 1 + 1, B2 2 + 1, B1 2 + 2, B0 2 + 1.
    CHECK(times(simulate(input), 1) == "F1.0 2-5, B1.0 10-14, U1 14-14");
    CHECK(times(simulate(input), 0) == "F0.0 0-2, B0.0 14-17, U0 17-17");
  }

  TEST_CASE("what stays on a worker costs nothing") {
    // V order: stages 0 and 3 on worker 0, 1 and 2 on worker 1; messages 0 to 1 and 2 to 3 alone.
    SimulationInput input = equal_stages(
        written({"F0.0 F3.0 B3.0 B0.0 U0 U3", "F1.0 F2.0 B2.0 B1.0 U1 U2"}, {{0}, {1}, {1}, {0}}, 1));
    link_all(input, costly(1));
    CHECK(times(simulate(input), 0) == "F0.0 0-2, F3.0 6-8, B3.0 8-11, B0.0 17-20, U0 20-20, U3 20-20");
    CHECK(times(simulate(input), 1) == "F1.0 2-4, F2.0 4-6, B2.0 11-14, B1.0 14-17, U1 17-17, U2 17-17");
  }

  TEST_CASE("of a split backward the input gradient pays, which travels") {
    SimulationInput input = equal_stages(written({"F0.0 I0.0 W0.0 U0", "F1.0 I1.0 W1.0 U1"}, {{0}, {1}}, 1));
    link_all(input, costly(1));
    CHECK(times(simulate(input), 1) == "F1.0 2-4, I1.0 4-6, W1.0 6-7, U1 7-7");
    CHECK(times(simulate(input), 0) == "F0.0 0-2, I0.0 6-8, W0.0 8-9, U0 9-9");
  }

  TEST_CASE("the share follows the size of the micro-batch, the cost of a message does not") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    input.edges = {{StageId{0}, StageId{1}, Bytes(1000), Bytes(0), 1, 0}};
    input.micro_batch_scale = {0.5};
    link_all(input, {kBandwidth, Seconds(0), Seconds(0.25), 0, Duplex::full});
    // F 0.5 + 0.25 + 0.5; the transfer takes no longer than the device's own part. No gradient travels.
    CHECK(times(simulate(input), 1) == "F1.0 1.25-2.5, B1.0 2.5-3.5, U1 3.5-3.5");
    CHECK(times(simulate(input), 0) == "F0.0 0-1.25, B0.0 3.5-4.5, U0 4.5-4.5");
  }

  TEST_CASE("a slice pays for every part that it sends") {
    // Halves on workers 0 and 1, thirds on 2, 3 and 4: each half goes to two of them.
    SimulationInput input = equal_stages(written(
        {"F0.0 B0.0 AR0 U0", "F0.0 B0.0 AR0 U0", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1"},
        {{0, 1}, {2, 3, 4}}, 1));
    link_all(input, costly(0.25));
    CHECK(times(simulate(input), 0).starts_with("F0.0 0-1, "));
  }

  TEST_CASE("half duplex: sending waits while the same port receives") {
    SimulationInput input = equal_stages(straight("1f1b", 2, 2));
    input.edges = {{StageId{0}, StageId{1}, Bytes(4000), Bytes(1000)}};
    link_all(input, {.bandwidth = kBandwidth, .duplex = Duplex::half});
    // Activations 1-5 and 5-9. B1.0 ends at 8, its gradient waits for the second activation: 9-10.
    CHECK(transfers(simulate(input)) == "F0.0 0>1 1-5, F0.1 0>1 5-9, B1.0 1>0 9-10, B1.1 1>0 12-13");
  }

  TEST_CASE("half duplex: a network card serves one direction at a time") {
    // Workers 0 and 1 in one node, 2 and 3 in the other. Activations 1-5 and, for the card, 5-9. F1.0 5-6,
    // B1.0 6-8; its gradient waits for the card until 9.
    SimulationInput input = equal_stages(program_set({"gpipe", {2, 2}, 2, WindowRule::win, {}}));
    input.edges = {{StageId{0}, StageId{1}, Bytes(4000), Bytes(1000)}};
    input.cards = {0, 0, 1, 1};
    link_all(input, {.bandwidth = kBandwidth});
    CHECK(transfers(simulate(input)) == "F0.0 0>2 1-5, F0.1 1>3 5-9, B1.0 2>0 8-9, B1.1 3>1 12-13");
    link_all(input, {.bandwidth = kBandwidth, .duplex = Duplex::half});
    CHECK(transfers(simulate(input)) == "F0.0 0>2 1-5, F0.1 1>3 5-9, B1.0 2>0 9-10, B1.1 3>1 12-13");
  }

  TEST_CASE("chained steps repeat what messages cost") {
    // Two stages of F = 1, B = 2 and a cost of 1 each way: worker 0 is idle between its F (2 s) and its B (3
    // s) while worker 1 runs 2 + 3; with one micro-batch the steps do not overlap: 10 s each.
    SimulationInput input = equal_stages(straight("gpipe", 2, 1));
    link_all(input, costly(1));
    CHECK(chained_period(input).count() == 10);
  }
}

}  // namespace
}  // namespace pp::plan::messages_test
