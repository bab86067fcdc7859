#include "librun/report/last_steps.h"

#include <nlohmann/json.hpp>

#include "librun/report/record.h"
#include "tests/support/plans.h"
#include "tests/support/small_model.h"

#include "tests/support/doctest.h"

namespace last_steps_test {

using namespace pp;
using namespace pp::run;

namespace {

constexpr auto F = plan::OpKind::forward;
constexpr auto B = plan::OpKind::backward;

/// One layer per stage, one stage per worker; F takes 1 s, B 2 s, all else nothing.
plan::Plan chain(const char* schedule, int micro_batches) {
  ModelGraph model = pp::test::small_model();
  plan::Plan plan =
      make_plan({.model = std::move(model), .cuts = {1}, .schedule = schedule, .micro_batches = micro_batches});
  plan::StageCosts costs;
  costs.forward = Seconds(1);
  costs.backward = Seconds(2);
  costs.weights = Bytes(100);
  costs.saved = Bytes(10);
  plan.predicted.stages.assign(2, costs);
  return plan;
}

OpRecord op(int worker, plan::Op op, double start, double end, std::int64_t step, int peak, int held) {
  return {{WorkerId{worker}, op, Seconds(start), Seconds(end)}, step, Bytes(peak), Bytes(held)};
}

plan::MemoryParts parts(int weights, int saved = 0, int workspace = 0) {
  plan::MemoryParts held;
  held.weights = Bytes(weights);
  held.saved = Bytes(saved);
  held.workspace = Bytes(workspace);
  return held;
}

std::vector<std::string> texts(const LastSteps& last) {
  std::vector<std::string> all;
  for (const TimedOp& op : last.ops) all.push_back(plan::to_text(op.event.op));
  return all;
}

}  // namespace

TEST_SUITE("librun/report/last_steps") {
  TEST_CASE("the last two steps are kept with what the step before them has left to do, from their own zero") {
    // Step 0 ends on worker 1 at 14; step 1 begins on worker 0 at 12.
    const StageId s0{0}, s1{1};
    WorkerRecord first, second;
    first.ops = {op(0, {F, s0, 0}, 10, 11, 0, 5, 5), op(0, {F, s0, 0}, 12, 13, 1, 7, 6),
                 op(0, {F, s0, 0}, 16, 17, 2, 7, 6)};
    second.ops = {op(1, {B, s1, 0}, 11, 14, 0, 9, 8), op(1, {B, s1, 0}, 13, 15, 0, 9, 8),
                  op(1, {F, s1, 0}, 15, 16, 1, 9, 8)};
    first.messages = {{{WorkerId{0}, WorkerId{1}, {F, s0, 0}, Bytes(4), Seconds(11), Seconds(11)}, 0},
                      {{WorkerId{0}, WorkerId{1}, {F, s0, 0}, Bytes(4), Seconds(13), Seconds(14)}, 1}};
    const std::vector<const WorkerRecord*> records{&first, &second};
    const LastSteps last = last_steps(chain("gpipe", 2), records, /*range=*/3);
    CHECK(last.first_step == 2);
    CHECK(last.steps == 2);
    CHECK(texts(last) == std::vector<std::string>{"F0.0", "B1.0", "F1.0", "F0.0"});
    CHECK(last.ops[0].event.start.count() == 0);
    CHECK(last.ops[1].event.start.count() == 1);
    CHECK(last.ops[1].event.end.count() == 3);
    REQUIRE(last.messages.size() == 1);
    CHECK(last.messages[0].start.count() == 1);

    // Only the last step where it follows no other.
    CHECK(last_steps(chain("gpipe", 2), records, 1).first_step == 3);
    CHECK(last_steps(chain("gpipe", 2), records, 0).ops.empty());
  }

  TEST_CASE("a stream's micro-batches count from the first that is shown") {
    WorkerRecord only;
    for (int i = 0; i < 9; ++i) only.ops.push_back(op(0, {F, StageId{0}, 100 + i}, i, i + 1, 100 + i, 1, 1));
    const std::vector<const WorkerRecord*> records{&only};
    const LastSteps last = last_steps(chain("pipedream", 1), records, 109);
    CHECK(last.steps == 6);  // 3 for each of two workers
    CHECK(texts(last) == std::vector<std::string>{"F0.0", "F0.1", "F0.2", "F0.3", "F0.4", "F0.5"});
  }

  TEST_CASE("memory stands in parts: what is always there, what is saved, what an operation needs on top") {
    LastSteps last;
    last.ops = {{{WorkerId{0}, {F, StageId{0}, 0}, Seconds(1), Seconds(2)}, Bytes(150), Bytes(120)},
                {{WorkerId{0}, {B, StageId{0}, 0}, Seconds(2), Seconds(4)}, Bytes(160), Bytes(100)}};
    const Drawn drawn = measured_timeline(last, std::vector{parts(100)});
    CHECK(drawn.result.makespan.count() == 4);
    CHECK(drawn.result.bubble_fraction == doctest::Approx(0.25));
    CHECK(drawn.memory.at(0) == plan::MemoryCurve{{Seconds(0), parts(100, 20)},
                                                  {Seconds(1), parts(100, 20, 30)},
                                                  {Seconds(2), parts(100, 20)},
                                                  {Seconds(2), parts(100, 20, 40)},
                                                  {Seconds(4), parts(100)}});
  }

  TEST_CASE("the prediction is of as many steps in the steady state, with the micro-batches of each") {
    // Two stages, two micro-batches, gpipe, F 1 s, B 2 s: worker 0 is busy 6 of a period of 9 s (it waits for
    // worker 1 from 2 to 5). Two steps: F0.0 to the last B0.1, 18 s, and each worker's 6 operations twice,
    // updates without length too.
    const Drawn drawn = predicted_timeline(chain("gpipe", 2), 2);
    CHECK(drawn.result.makespan.count() == doctest::Approx(18));
    CHECK(std::ranges::count(drawn.result.ops, plan::Op{F, StageId{0}, 1}, &plan::OpEvent::op) == 2);
    CHECK(std::ranges::count(drawn.result.ops, plan::Op{B, StageId{1}, 0}, &plan::OpEvent::op) == 2);
    CHECK(drawn.memory.size() == 2);
    CHECK(drawn.memory[0].front().time.count() == 0);
    CHECK(highest(drawn.memory) == Bytes(100 + 2 * 10));
  }
}

TEST_SUITE("librun/report/history") {
  TEST_CASE("a short run has a sample for every step, a long one joins neighbours in bounded memory") {
    StepHistory history;
    const auto add = [&](int i) { history.add(Seconds(i), std::vector<StepFigures>{{Seconds(0), Bytes(i)}}); };
    for (int i = 0; i < 512; ++i) add(i);
    CHECK(history.stride == 1);
    CHECK(history.time[511].count() == 511);
    add(512);
    CHECK(history.stride == 2);
    REQUIRE(history.time.size() == 257);
    CHECK(history.time[0].count() == 0.5);      // of 0 and 1
    CHECK(history.peak[0][255] == Bytes(511));  // of 510 and 511
    CHECK(history.time[256].count() == 512);    // so far alone
    add(514);
    CHECK(history.time[256].count() == 513);
    for (int i = 0; i < 100000; ++i) add(7);
    CHECK(history.time.size() <= StepHistory::kMost);
    CHECK(history.steps == 100514);
    CHECK(static_cast<std::int64_t>(history.time.size()) ==
          (history.steps + history.stride - 1) / history.stride);
  }
}

}  // namespace last_steps_test
