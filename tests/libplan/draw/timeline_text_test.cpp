#include "libplan/draw/timeline_text.h"

#include <sstream>

#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::straight;
using test::written;

/// Width of 24 cells: two digits of a worker, two of the frame, nine of the right column.
constexpr int kWidth = 24 + 2 + 2 + 9;

std::string text_of(const SimulationInput& input, TextOptions options) {
  const SimulationResult result = simulate(input);
  return timeline_text(result, memory_curves(input, result), options);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Columns on the screen: no escape sequences, no UTF-8 continuation bytes.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  bool escape = false;
  for (const char c : line) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++count;
    if (c == 'm') escape = false;
  }
  return count;
}

TEST_SUITE("libplan/draw/timeline text") {
  TEST_CASE("gpipe with two stages, character by character") {
    // F 1 s, B 2 s: makespan 6 s, four columns a second. Worker 0: F 0-1, B 4-6; worker 1: F 1-2, B 2-4.
    CHECK(text_of(equal_stages(straight("gpipe", 2, 1)), {kWidth, false}) ==
          "ms  |0      |2000   |4000        idle\n"
          " 0 |F0--············B0======|  50.0 %\n"
          " 1 |····F0--B0======········|  50.0 %\n"
          "    F-- forward  B== backward\n"
          "    U** update  · idle\n"
          "    without length, not drawn: 2\n"
          "    operations\n");
  }

  TEST_CASE("memory over time stands below, to one scale") {
    SimulationInput input = equal_stages(straight("gpipe", 1, 2));
    input.stages[0].saved = Bytes(8);
    // F0 0-1, F1 1-2, B0 2-4, B1 4-6: 8, 16, 16, 8 bytes.
    const std::vector<std::string> lines = lines_of(text_of(input, {kWidth, false}));
    CHECK(lines.at(lines.size() - 2) == "    memory, full height 16 B");
    CHECK(lines.back() == " 0 |▄▄▄▄████████████▄▄▄▄▄▄▄▄|    16 B");
  }

  TEST_CASE("small letters are a worker's second stage, and the stage stands there if it fits") {
    // F0 0-1, F1 1-2, B1 2-4, B0 4-6.
    const SimulationInput input = equal_stages(written({"F0.0 F1.0 B1.0 B0.0 U0 U1"}, {{0}, {0}}, 1));
    CHECK(lines_of(text_of(input, {kWidth, false})).at(1) == " 0 |F0.0f1.0b1.0====B0.0====|   0.0 %");
    // 12 cells, two a second.
    CHECK(lines_of(text_of(input, {kWidth - 12, false})).at(1) == " 0 |F0f0b1.0B0.0|   0.0 %");
  }

  TEST_CASE("kinds stand apart without colour") {
    SimulationInput input =
        equal_stages(written({"F0.0 R0.0 I0.0 W0.0 AR0 U0", "F0.1 B0.1 AR0 U0"}, {{0, 1}}, 2));
    for (StageCosts& stage : input.stages) stage.all_reduce = stage.update = Seconds(2);
    input.all_reduce = AllReduceMode::blocking;
    // F R I W 1 s each, AR and U 2 s each: 8 s, three cells a second.
    CHECK(lines_of(text_of(input, {kWidth, false})).at(1) == " 0 |F0-R0:I0~W0+AR####U*****|   0.0 %");
  }

  TEST_CASE("labels shrink with the operation: number alone for a forward, last digit, letter") {
    // 11 micro-batches on one worker: 33 s. Micro-batch 10 is the last: F 30-31, B 31-33.
    const SimulationInput input = equal_stages(straight("1f1b", 1, 11));
    const auto end_of_row = [&](std::size_t cells) {
      const std::size_t left = cells + kWidth - 24 < 60 ? 2 : 9;  // `worker ` from 60 columns on
      const std::string row = lines_of(text_of(input, {static_cast<int>(left + 2 + cells + 9), false})).at(1);
      return row.substr(left + 2 + cells * 30 / 33, cells * 3 / 33);
    };
    CHECK(end_of_row(99) == "F10B10===");
    CHECK(end_of_row(66) == "10B10=");
    CHECK(end_of_row(33) == "0B0");
  }

  TEST_CASE("operations below half a cell are the letter of what takes most of it") {
    // 1000 x (F 1 s, B 2 s) in 24 cells.
    const std::vector<std::string> lines =
        lines_of(text_of(equal_stages(straight("1f1b", 1, 1000)), {kWidth, false}));
    CHECK(lines.at(1) == " 0 |BBBBBBBBBBBBBBBBBBBBBBBB|   0.0 %");
    CHECK(lines.at(3) == "    U** update  · idle");
    CHECK(lines.at(4) == "    where operations are too short:");
  }

  TEST_CASE("colour adds sequences and takes no column") {
    const SimulationInput input = equal_stages(straight("1f1b", 2, 3));
    const std::vector<std::string> plain = lines_of(text_of(input, {100, false}));
    const std::vector<std::string> colored = lines_of(text_of(input, {100, true}));
    CHECK(plain.at(1).find('\033') == std::string::npos);
    CHECK(colored.at(1).find("\033[38;5;16;48;5;75mF0 ") != std::string::npos);
    CHECK(columns(colored.at(1)) == columns(plain.at(1)));
  }

  TEST_CASE("every line fits the width, for one worker and a hundred, narrow and wide") {
    for (const int workers : {1, 2, 12, 100}) {
      SimulationInput input = equal_stages(straight("1f1b", workers, 30));
      for (StageCosts& stage : input.stages) stage.saved = Bytes(1 << 20);
      for (const int width : {22, 30, 59, 60, 80, 100, 250}) {
        for (const bool color : {false, true}) {
          CAPTURE(workers);
          CAPTURE(width);
          const std::vector<std::string> lines = lines_of(text_of(input, {width, color}));
          CHECK(lines.size() > 2 * at(workers));
          for (const std::string& line : lines) {
            CAPTURE(line);
            CHECK(columns(line) <= at(width));
          }
        }
      }
    }
  }

  TEST_CASE("a simulation in which nothing takes time draws empty rows") {
    SimulationInput input = equal_stages(straight("gpipe", 1, 1));
    input.stages[0] = {};
    const std::vector<std::string> lines = lines_of(text_of(input, {kWidth, false}));
    CHECK(lines.at(1) == " 0 |························|   0.0 %");
  }
}

}  // namespace
}  // namespace pp::plan
