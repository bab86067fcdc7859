// The parts of a timeline: its boxes, its axis, and the operations that wait for a message.
#include "libplan/draw/timeline_rows.h"

#include <sstream>

#include "libplan/draw/chrome_trace.h"
#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

/// `F0.0 0-1 x1 F:1`: operation, times, how many, time by kind.
std::string boxes_of(const SimulationInput& input, double shortest) {
  const SimulationResult result = simulate(input);
  const std::vector<TimelineRow> rows = timeline_rows(result);
  std::ostringstream text;
  for (const TimelineBox& box : timeline_boxes(rows.at(0), Seconds(shortest))) {
    text << to_text(box.op->op) << ' ' << box.start.count() << '-' << box.end.count() << " x" << box.count;
    for (const auto& [kind, letters] : EnumNames<OpKind>::table) {
      const Seconds busy = box.busy[at(kind)];
      if (busy.count() > 0) text << ' ' << letters << ':' << busy.count();
    }
    text << '\n';
  }
  return text.str();
}

std::string labels(Seconds length, int most) {
  const TimeAxis axis = time_axis(length, most);
  std::string text;
  for (int tick = 0; tick <= axis.last; ++tick) text += axis.label(tick) + ' ';
  return text + std::string(axis.unit);
}

/// `F0.0>F1.0`: producers and the operations that need them.
std::string pairs(const SimulationResult& result) {
  const std::vector<const OpEvent*> consumers = message_consumers(result);
  std::ostringstream text;
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    text << (i > 0 ? " " : "") << to_text(result.messages[i].producer) << '>'
         << (consumers[i] == nullptr ? "?" : to_text(consumers[i]->op));
  }
  return text.str();
}

TEST_SUITE("libplan/draw/timeline boxes") {
  TEST_CASE("operations that are long enough stay alone") {
    const SimulationInput input = test::equal_stages(test::straight("1f1b", 1, 2));
    CHECK(boxes_of(input, 0.5) ==
          "F0.0 0-1 x1 F:1\n"
          "B0.0 1-3 x1 B:2\n"
          "F0.1 3-4 x1 F:1\n"
          "B0.1 4-6 x1 B:2\n"
          "U0 6-6 x1\n");
  }

  TEST_CASE("short ones are joined while the run is short, with the longest of the prevailing kind") {
    // F 1, B 2: F B is 3 long; below 4 the next F would make it 4, below 5 it fits and B would make 6.
    const SimulationInput input = test::equal_stages(test::straight("1f1b", 1, 2));
    CHECK(boxes_of(input, 4) ==
          "B0.0 0-3 x2 F:1 B:2\n"
          "B0.1 3-6 x3 F:1 B:2\n");
    CHECK(boxes_of(input, 5) ==
          "B0.0 0-4 x3 F:2 B:2\n"
          "B0.1 4-6 x2 B:2\n");
    CHECK(boxes_of(input, 100) == "B0.0 0-6 x5 F:2 B:4\n");
  }

  TEST_CASE("idle time inside a run belongs to no kind") {
    // Worker 0 of gpipe with K = 2, M = 1: F 0-1, B 4-6.
    CHECK(boxes_of(test::equal_stages(test::straight("gpipe", 2, 1)), 100) == "B0.0 0-6 x3 F:1 B:2\n");
  }

  TEST_CASE("no more than two boxes per shortest length") {
    const SimulationInput input = test::equal_stages(test::straight("1f1b", 2, 500));
    const SimulationResult result = simulate(input);
    const std::vector<TimelineRow> rows = timeline_rows(result);
    for (const double parts : {1.0, 7.0, 30.0}) {
      const auto boxes = timeline_boxes(rows[0], result.makespan / parts);
      CHECK(static_cast<double>(boxes.size()) <= 2 * parts + 1);
      int count = 0;
      for (const TimelineBox& box : boxes) count += box.count;
      CHECK(count == 1001);  // 500 F, 500 B, one U
    }
  }

  TEST_CASE("steps are 1, 2 or 5 times a power of ten, the smallest that leaves few enough ticks") {
    CHECK(labels(Seconds(0.033), 5) == "0 10 20 30 ms");
    CHECK(labels(Seconds(0.033), 4) == "0 10 20 30 ms");
    CHECK(labels(Seconds(0.033), 3) == "0 20 ms");
    CHECK(labels(Seconds(0.033), 10) == "0 5 10 15 20 25 30 ms");
    CHECK(labels(Seconds(0.0015), 4) == "0.0 0.5 1.0 1.5 ms");
  }

  TEST_CASE("a length of whole steps ends with a tick") {
    CHECK(labels(Seconds(0.1 + 0.2), 4) == "0 100 200 300 ms");
    CHECK(labels(Seconds(0.6), 4) == "0 200 400 600 ms");
  }

  TEST_CASE("the unit fits the length") {
    CHECK(labels(Seconds(20), 3) == "0 10 20 s");
    CHECK(labels(Seconds(5), 3) == "0 2000 4000 ms");
    CHECK(labels(Seconds(20e-6), 3) == "0 10 20 us");
    CHECK(labels(Seconds(20e-9), 3) == "0 10 20 ns");
    CHECK(labels(Seconds(86400), 3) == "0 50000 s");
  }

  TEST_CASE("no length is one tick; fewer than three asked for are three at most") {
    CHECK(labels(Seconds(0), 5) == "0 ns");
    CHECK(labels(Seconds(0.033), 1) == "0 20 ms");
    CHECK(labels(Seconds(0.02), 1) == "0 10 20 ms");
  }

  TEST_CASE("there are never more ticks than asked for, and always two") {
    for (int most = 3; most < 20; ++most) {
      for (double length = 1e-9; length < 1e4; length *= 1.37) {
        const TimeAxis axis = time_axis(Seconds(length), most);
        CAPTURE(length);
        CAPTURE(most);
        CHECK(axis.last < most);
        CHECK(axis.last >= 1);
        CHECK(axis.time(axis.last).count() <= length * (1 + 1e-8));
      }
    }
  }

  TEST_CASE("activations go to the next stage, gradients back") {
    CHECK(pairs(simulate(test::equal_stages(test::straight("gpipe", 3, 1)))) ==
          "F0.0>F1.0 F1.0>F2.0 B2.0>B1.0 B1.0>B0.0");
  }

  TEST_CASE("of several stages on the receiver the nearest is meant") {
    // V placement: stages 0 and 3 on worker 0, 1 and 2 on worker 1.
    const auto input =
        test::equal_stages(test::written({"F0.0 F3.0 I3.0 I0.0 W3.0 W0.0", "F1.0 F2.0 I2.0 I1.0 W2.0 W1.0"},
                                         {{0}, {1}, {1}, {0}}, 1),
                           2);
    CHECK(pairs(simulate(input)) == "F0.0>F1.0 F2.0>F3.0 I3.0>I2.0 I1.0>I0.0");
  }

  TEST_CASE("a skip goes straight to its reader") {
    auto input = test::equal_stages(test::straight("gpipe", 3, 1));
    for (const auto& [from, to] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{1, 2}}) {
      input.edges.push_back({StageId{from}, StageId{to}, Bytes(1), Bytes(1)});
    }
    CHECK(pairs(simulate(input)) == "F0.0>F1.0 F0.0>F2.0 F1.0>F2.0 B2.0>B1.0 B2.0>B0.0 B1.0>B0.0");
  }

  TEST_CASE("in a run of several steps the next reader after the sending is meant") {
    SimulationResult result;
    const Op sent{OpKind::forward, StageId{0}, 0}, read{OpKind::forward, StageId{1}, 0};
    result.ops = {{WorkerId{1}, read, Seconds(1), Seconds(2)}, {WorkerId{1}, read, Seconds(11), Seconds(12)}};
    result.messages = {{WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(0.5), Seconds(0.6)},
                       {WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(9), Seconds(9.5)},
                       {WorkerId{0}, WorkerId{1}, sent, Bytes(1), Seconds(20), Seconds(21)}};
    const std::vector<const OpEvent*> consumers = message_consumers(result);
    CHECK(consumers == std::vector<const OpEvent*>{result.ops.data(), &result.ops[1], nullptr});
  }
}

}  // namespace
}  // namespace pp::plan
