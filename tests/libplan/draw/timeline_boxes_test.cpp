#include "libplan/draw/timeline_rows.h"

#include <sstream>

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
}

}  // namespace
}  // namespace pp::plan
