// Where a worker stands: steps and rows against hand arithmetic.
#include "librun/wiring/cursor.h"

#include <string>
#include <vector>

#include "tests/support/doctest.h"

namespace cursor_test {

using namespace pp;
using namespace pp::run;

namespace {

std::vector<Operation> all(Cursor cursor) {
  std::vector<Operation> turns;
  while (const std::optional<Operation> operation = cursor.next()) turns.push_back(*operation);
  return turns;
}

/// `F0.1@3`: the operation and its step.
std::string text(const std::vector<Operation>& turns) {
  std::string line;
  for (const Operation& operation : turns)
    line += (line.empty() ? "" : " ") + plan::to_text(operation.op) + "@" + std::to_string(operation.step);
  return line;
}

plan::Stream step(const char* program, int micro_batches) {
  return plan::steps_of(plan::parse_program(program), micro_batches);
}

/// PipeDream's first of two stages: two in flight (warm = 1).
plan::Stream first_of_two() {
  return {.prologue = plan::parse_program("F0.0"), .body = plan::parse_program("F0.1 B0.0 U0"), .period = 1};
}

}  // namespace

TEST_SUITE("librun/wiring/cursor") {
  TEST_CASE("a step's program is walked once a step, with the rows of its micro-batches") {
    const plan::Stream stream = step("F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3 U0", 4);
    // 26 samples in mini-batches of 10: the third has 6. Of 10 in 4: 3,3,2,2; of 6 in 4: 2,2,1,1.
    const EpochShape epoch{.samples = 26, .mini_batch = 10, .micro_batches = 4, .count = 3};
    const std::vector<Operation> turns =
        all(Cursor(stream, true, epoch, {.first = 3, .end = 6, .epoch_first = 3}));
    REQUIRE(turns.size() == 27);
    const std::vector<std::int64_t> first{0, 3, 6, 8, 10, 13, 16, 18, 20, 22, 24, 25};
    const std::vector<int> rows{3, 3, 2, 2, 3, 3, 2, 2, 2, 2, 1, 1};
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t s = i / 4, m = i % 4;
      const Operation &forward = turns[9 * s + m], &backward = turns[9 * s + 4 + m];
      CHECK(plan::to_text(forward.op) == "F0." + std::to_string(m));
      for (const Operation& operation : {forward, backward}) {
        CHECK(operation.step == static_cast<Step>(3 + s));
        CHECK(operation.micro_batch == static_cast<int>(m));
        CHECK(operation.first_row == first[i]);
        CHECK(operation.rows == rows[i]);
      }
      CHECK(turns[9 * s + 8].step == static_cast<Step>(3 + s));  // U
    }
  }

  TEST_CASE("accumulated mini-batches: one update for all, micro-batches count over the step") {
    const plan::Stream stream = step("F0.0 F0.1 B0.0 B0.1 AR0 U0", 2);
    // Mini-batches of 4, 4 and 2 samples, two a step; the second step of the epoch has the last one alone.
    const EpochShape epoch{.samples = 10, .mini_batch = 4, .micro_batches = 2, .count = 3, .accumulate = 2};
    const std::vector<Operation> turns =
        all(Cursor(stream, true, epoch, {.first = 2, .end = 4, .epoch_first = 2}));
    CHECK(text(turns) ==
          "F0.0@2 F0.1@2 B0.0@2 B0.1@2 F0.2@2 F0.3@2 B0.2@2 B0.3@2 AR0@2 U0@2 "
          "F0.0@3 F0.1@3 B0.0@3 B0.1@3 AR0@3 U0@3");
    CHECK(turns[5].first_row == 6);  // F0.3: the second half of the second mini-batch
    CHECK(turns[5].rows == 2);
    CHECK(turns[5].micro_batch == 3);
    CHECK(turns[10].first_row == 8);
    CHECK(turns[10].rows == 1);
    // Cut after the first step, and begun with the second.
    Cursor cut(stream, true, epoch, {.first = 2, .end = 4, .epoch_first = 2});
    cut.end_at(3);
    CHECK(all(cut).size() == 10);
    CHECK(text(all(Cursor(stream, true, epoch, {.first = 3, .end = 4, .epoch_first = 2}))) ==
          "F0.0@3 F0.1@3 B0.0@3 B0.1@3 AR0@3 U0@3");
  }

  TEST_CASE("an update belongs to the step of its stage's last backward") {
    const plan::Stream stream = first_of_two();
    const EpochShape epoch{.samples = 8, .mini_batch = 2, .count = 4};
    CHECK(text(all(Cursor(stream, false, epoch, {.first = 0, .end = 4}))) ==
          "F0.0@0 F0.1@1 B0.0@0 U0@0 F0.2@2 B0.1@1 U0@1 F0.3@3 B0.2@2 U0@2 B0.3@3 U0@3");
  }

  TEST_CASE("a range that begins within an epoch fills the pipeline anew and reads on") {
    const plan::Stream stream = first_of_two();
    const EpochShape epoch{.samples = 12, .mini_batch = 2, .count = 6};
    // Of the second epoch, steps 6..11, the last three.
    const std::vector<Operation> turns =
        all(Cursor(stream, false, epoch, {.first = 9, .end = 12, .epoch_first = 6}));
    CHECK(text(turns) == "F0.0@9 F0.1@10 B0.0@9 U0@9 F0.2@11 B0.1@10 U0@10 B0.2@11 U0@11");
    CHECK(turns.front().first_row == 6);
    CHECK(turns.front().rows == 2);
  }

  TEST_CASE("a replica's turns: the mini-batches of its own") {
    // Second of two replicas, one in flight: mini-batches 1, 3, ...
    const plan::Stream stream{.prologue = {}, .body = plan::parse_program("F0.1 B0.1 AR0 U0"), .period = 2};
    const EpochShape epoch{.samples = 4, .mini_batch = 1, .count = 4};
    CHECK(text(all(Cursor(stream, false, epoch, {.first = 0, .end = 4}))) ==
          "F0.1@1 B0.1@1 AR0@1 U0@1 F0.3@3 B0.3@3 AR0@3 U0@3");
  }

  TEST_CASE("a replica without micro-batches has its reductions and updates in every step") {
    const EpochShape epoch{.samples = 4, .mini_batch = 2, .micro_batches = 2, .count = 2};
    const plan::Stream stream = step("AR0 U0", 2);
    CHECK(text(all(Cursor(stream, true, epoch, {.first = 0, .end = 2}))) == "AR0@0 U0@0 AR0@1 U0@1");
  }

  TEST_CASE("several micro-batches make an update of a stream") {
    // 2BW, last of two stages, two micro-batches per update.
    const plan::Stream stream{
        .prologue = {}, .body = plan::parse_program("F1.0 B1.0 F1.1 B1.1 U1"), .period = 2};
    const EpochShape epoch{.samples = 7, .mini_batch = 4, .micro_batches = 2, .count = 2};
    const std::vector<Operation> turns = all(Cursor(stream, false, epoch, {.first = 0, .end = 2}));
    CHECK(text(turns) == "F1.0@0 B1.0@0 F1.1@0 B1.1@0 U1@0 F1.2@1 B1.2@1 F1.3@1 B1.3@1 U1@1");
    CHECK(turns[7].first_row == 6);  // of the 3 samples of the last mini-batch, 2 + 1, the third
    CHECK(turns[7].rows == 1);
  }

  TEST_CASE("what is run again is known at its forward") {
    const plan::Stream stream = step("F0.0 F0.1 R0.0 B0.0 B0.1 U0", 2);
    const EpochShape epoch{.samples = 4, .mini_batch = 2, .micro_batches = 2, .count = 2};
    for (const Operation& operation : all(Cursor(stream, true, epoch, {.first = 0, .end = 2})))
      CHECK(operation.run_again == (operation.op.kind == plan::OpKind::forward && operation.micro_batch == 0));
  }

  TEST_CASE("a range that is cut short leaves out whole steps, wherever it stands") {
    const EpochShape epoch{.samples = 8, .mini_batch = 2, .micro_batches = 2, .count = 4};
    const plan::Stream stream = step("F0.0 F0.1 B0.0 B0.1 U0", 2);
    Cursor cursor(stream, true, epoch, {.first = 0, .end = 4});
    for (int i = 0; i < 6; ++i) CHECK(cursor.next().has_value());  // step 0 and F0.0 of step 1, refused
    cursor.end_at(1);
    CHECK_FALSE(cursor.next().has_value());

    const plan::Stream streamed = first_of_two();
    const EpochShape mini_batches{.samples = 8, .mini_batch = 2, .count = 4};
    Cursor left(streamed, false, mini_batches, {.first = 0, .end = 4});
    for (int i = 0; i < 5; ++i) CHECK(left.next().has_value());  // F0 F1 B0 U F2, which is refused
    left.end_at(2);
    CHECK(text(all(left)) == "B0.1@1 U0@1");
  }
}

}  // namespace cursor_test
