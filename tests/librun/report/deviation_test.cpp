#include "librun/report/deviation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "librun/report/build.h"
#include "tests/support/plans.h"
#include "tests/support/small_model.h"

#include "tests/support/doctest.h"

namespace deviation_test {

using namespace pp;
using namespace pp::run;

namespace {

// Two stages under 1F1B with M = 4, forwards of 0.5 and 1 s, backwards of twice that, free messages. Worker 1
// is busy for 4 * 3 s without a pause, from the end of the first forward of stage 0 to the last backward there:
// 0.5 + 12 + 1 = 13.5 s.
RunReport two_stages() {
  RunReport report;
  report.plan = make_plan(
      {.model = pp::test::small_model(), .cuts = {1}, .schedule = "1f1b", .mini_batch = 8, .micro_batches = 4});
  report.plan.predicted.stages.assign(2, {});
  for (int s = 0; s < 2; ++s) {
    plan::StageCosts& costs = report.plan.predicted.stages[static_cast<std::size_t>(s)];
    costs.forward = Seconds(s == 0 ? 0.5 : 1);
    costs.backward = 2 * costs.forward;
    for (const auto& [kind, time] :
         {std::pair{plan::OpKind::forward, costs.forward}, std::pair{plan::OpKind::backward, costs.backward}})
      report.op_times.push_back({kind, StageId{s}, 4, time, time});
  }
  report.comparisons.push_back({"step_s", 13.5, 13.5, 1});
  report.step = Seconds(13.5);
  report.steps = 1;
  return report;
}

StepRecord step(double time, int samples = 8) {
  return {.range = 0, .loss = 1, .samples = samples, .end = Seconds(0), .time = Seconds(time)};
}

}  // namespace

TEST_SUITE("librun/report/deviation") {
  TEST_CASE("a step as promised has nothing to say") {
    RunReport report = two_stages();
    report.deviation = deviation_of(report, {}, {});
    REQUIRE(report.deviation->operations.has_value());
    CHECK(report.deviation->operations->count() == doctest::Approx(0));
    CHECK(deviation_lines(report).empty());
  }

  TEST_CASE("slower operations are worth what they make of the step, not what they add up to") {
    RunReport report = two_stages();
    // Stage 1's forward takes 1.2 s: 4 * 0.2 s more. Of stage 0's, which take 0.75 s, only the first is in the
    // way of anything: 0.25 s. The measured step is another 0.45 s longer, which nothing explains.
    report.op_times[0].median = Seconds(0.75);
    report.op_times[2].median = Seconds(1.2);
    report.step = Seconds(15);
    report.deviation = deviation_of(report, {}, {});
    CHECK(report.deviation->operations->count() == doctest::Approx(1.05));
    REQUIRE(deviation_lines(report).size() == 1);
    // 4 * 0.25 s is the largest sum: stage 0's forwards.
    CHECK(deviation_lines(report)[0] ==
          "the step takes 1.5 s longer than predicted: operations +1.05 s (most of it: forward of stage 0, 1.5 "
          "times as long as promised), messages and waiting +450 ms");
  }

  TEST_CASE("an operation that takes as long as promised is not named as what adds most") {
    RunReport report = two_stages();
    report.op_times[0].median = 1.0001 * report.op_times[0].median;
    report.step = Seconds(15);
    report.deviation = deviation_of(report, {}, {});
    REQUIRE(deviation_lines(report).size() == 1);
    CHECK(deviation_lines(report)[0].find("times as long") == std::string::npos);
  }

  TEST_CASE("faster operations and longer waiting have signs of their own") {
    RunReport report = two_stages();
    report.op_times[3].median = Seconds(1.5);  // of 2: 4 * 0.5 s less
    report.step = Seconds(12.5);
    report.deviation = deviation_of(report, {}, {});
    CHECK(report.deviation->operations->count() == doctest::Approx(-2));
    CHECK(
        deviation_lines(report).at(0) ==
        "the step takes 1 s less than predicted: operations -2 s (most of it: backward of stage 1, 0.75 times "
        "as long as promised), messages and waiting +1 s");
  }

  TEST_CASE("what operations take beyond their medians is no waiting") {
    RunReport report = two_stages();
    // Worker 1 is busy for 15 s in a step of 16.5; four forwards of 1 s and four backwards of 2 s are 12 by
    // their medians: 3 s. No median is longer than promised, and the step is 3 s longer.
    WorkerRecord first, second;
    first.busy = {Seconds(6)};
    second.busy = {Seconds(15)};
    for (int i = 0; i < 4; ++i) {
      first.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(0.5));
      first.op_times[{plan::OpKind::backward, StageId{0}}].add(Seconds(1));
      second.op_times[{plan::OpKind::forward, StageId{1}}].add(Seconds(1));
      second.op_times[{plan::OpKind::backward, StageId{1}}].add(Seconds(2));
    }
    report.step = Seconds(16.5);
    report.deviation = deviation_of(report, {}, std::vector<const WorkerRecord*>{&first, &second});
    CHECK(report.deviation->above_medians.count() == doctest::Approx(3));
    CHECK(deviation_lines(report).at(0) ==
          "the step takes 3 s longer than predicted: operations +0 s, time beyond the medians +3 s, "
          "messages and waiting +0 s");
  }

  TEST_CASE("instructions stand beside their prediction, and the wait that grew most is named") {
    RunReport report = two_stages();
    report.plan.predicted.step = Seconds(13.5);
    // Worker 1 computes as promised and waits 3 s in place of 1.5.
    WorkerRecord first, second;
    second.instruction_times[{plan::InstructionKind::forward, StageId{1}}].add(Seconds(4));
    second.instruction_times[{plan::InstructionKind::receive, StageId{1}}].add(Seconds(3));
    report.workers.resize(2);
    report.workers[1].id = WorkerId{1};
    report.workers[1].busy = Seconds(12);
    report.instructions = instruction_report(report, std::vector<const WorkerRecord*>{&first, &second});
    const auto row = [&](plan::InstructionKind kind) {
      return *std::ranges::find_if(report.instructions, [&](const InstructionReport& one) {
        return one.worker == WorkerId{1} && one.kind == kind;
      });
    };
    CHECK(row(plan::InstructionKind::forward).predicted.count() == doctest::Approx(4));
    CHECK(row(plan::InstructionKind::backward).predicted.count() == doctest::Approx(8));
    CHECK(row(plan::InstructionKind::receive).predicted.count() == doctest::Approx(1.5));
    CHECK(row(plan::InstructionKind::receive).median == Seconds(3));
    report.step = Seconds(15);
    report.deviation = deviation_of(report, {}, {});
    CHECK(deviation_lines(report).at(0) ==
          "the step takes 1.5 s longer than predicted: operations +0 s, messages and waiting +1.5 s (most of "
          "it: receive of stage 1 on worker 1, +1.5 s)");
  }

  TEST_CASE("a plan whose own expectation is far above its step says so") {
    RunReport report = two_stages();
    report.plan.predicted.step = Seconds(13.5);
    report.plan.predicted.expected_step = Seconds(27);
    report.deviation = deviation_of(report, {}, {});
    CHECK(
        deviation_lines(report) ==
        std::vector<std::string>{"operations vary so much in the profile that the plan expects 27 s a step on "
                                 "average, 13.5 s by their medians: profile again on a quieter machine"});
  }

  TEST_CASE("where a step is many mini-batches, so is the difference") {
    RunReport report = two_stages();
    report.comparisons[0].predicted = 27;
    report.op_times[2].median = Seconds(1.2);
    CHECK(deviation_of(report, {}, {}).operations->count() == doctest::Approx(1.6));
  }

  TEST_CASE("interrupted operations are those above twice the median of their kind and stage") {
    RunReport report = two_stages();
    WorkerRecord first, second;
    // 96 of 1 s and 4 of 2.1 s; 2 s is no interruption where the median is 1 s, nor 3 s where it is 3 s.
    for (int i = 0; i < 96; ++i) first.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(1));
    for (int i = 0; i < 4; ++i) first.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(2.1));
    first.op_times[{plan::OpKind::backward, StageId{0}}].add(Seconds(3));
    second.op_times[{plan::OpKind::forward, StageId{1}}].add(Seconds(1));
    second.op_times[{plan::OpKind::forward, StageId{1}}].add(Seconds(1));
    second.op_times[{plan::OpKind::forward, StageId{1}}].add(Seconds(2));
    const std::vector<const WorkerRecord*> workers{&first, &second};
    report.deviation = deviation_of(report, {}, workers);
    CHECK(report.deviation->operation_count == 104);
    CHECK(report.deviation->interrupted == 4);
    report.deviation->mean_excess = Seconds(0.25);
    CHECK(
        deviation_lines(report) ==
        std::vector<std::string>{
            "4 of 104 operations were interrupted (they took more than twice their median): other programs use "
            "these devices; the mean step is +250 ms from the median"});
  }

  TEST_CASE("the first steps and partial mini-batches are told apart from the others") {
    RunReport report = two_stages();
    // Three first steps of 20, 14 and 13.5 s are 6.5 + 0.5 + 0 above the median; then 13.5, 13.5, 15.5: a mean
    // of 42.5/3, 2/3 s above it; two partial ones of 7 and 8 s, whose upper median is 8.
    const std::vector<StepRecord> steps{step(20),   step(14),   step(13.5), step(13.5),
                                        step(13.5), step(15.5), step(7, 3), step(8, 3)};
    report.steps = 8;
    report.deviation = deviation_of(report, steps, {});
    const Deviation& found = *report.deviation;
    CHECK(found.first_steps == 3);
    CHECK(found.first_excess.count() == doctest::Approx(7));
    CHECK(found.mean_excess.count() == doctest::Approx(2.0 / 3));
    CHECK(found.partial_steps == 2);
    CHECK(found.partial_step.count() == doctest::Approx(8));
    CHECK(
        deviation_lines(report) ==
        std::vector<std::string>{
            "the first 3 steps took 7 s longer in all, with cold caches and memory to ask for; the step leaves "
            "them out",
            "2 steps of 8 had a partial mini-batch and took 8 s, the others 13.5 s"});
    // Of a long run only the last steps are kept: its first ones are not known.
    report.steps = 9;
    CHECK(deviation_of(report, steps, {}).first_steps == 0);
  }

  TEST_CASE("a plan without times has no promise to explain") {
    RunReport report = two_stages();
    report.plan.predicted = {};
    report.comparisons.clear();
    report.deviation = deviation_of(report, {}, {});
    CHECK_FALSE(report.deviation->operations.has_value());
    CHECK(deviation_lines(report).empty());
  }
}

}  // namespace deviation_test
