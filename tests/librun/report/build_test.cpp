#include "librun/report/build.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/json_reader.h"
#include "librun/report/record.h"
#include "tests/support/doctest.h"

namespace build_test {

using namespace pp;
using namespace pp::run;

namespace {

StepRecord unit(int epoch, double end) { return {epoch, 0.5, 8, Seconds(end)}; }

plan::Plan two_workers() {
  plan::Plan plan;
  plan.training.mini_batch = 8;
  plan.workers.resize(2);
  plan.predicted.step = Seconds(1);
  plan.predicted.samples_per_s = 8;
  plan.predicted.workers.resize(2);
  plan.predicted.workers[1].busy = Seconds(0.5);
  plan.predicted.workers[1].memory.peak = Bytes(100);
  return plan;
}

OpRecord forward(int stage, std::int64_t frame, double start, double end) {
  const plan::Op op{plan::OpKind::forward, StageId{stage}, static_cast<int>(frame)};
  return {{WorkerId{stage}, op, Seconds(start), Seconds(end)}, frame, {}, {}};
}

}  // namespace

TEST_SUITE("librun/report/build") {
  TEST_CASE("step time leaves out the warm-up and the first step of an epoch") {
    // Steps take 9, 8, 7 (warm-up), 2, 3 | evaluation and a first step that together take 50, then 4, 2: median
    // of 2, 3, 4, 2 with the upper one of an even number.
    const std::vector<StepRecord> units{unit(0, 9),  unit(0, 17), unit(0, 24), unit(0, 26),
                                        unit(0, 29), unit(1, 79), unit(1, 83), unit(1, 85)};
    CHECK(step_time(units, false).count() == doctest::Approx(3));
  }

  TEST_CASE("a run of warm-up steps only still has a step time") {
    const std::vector<StepRecord> units{unit(0, 2), unit(0, 3)};
    CHECK(step_time(units, false).count() == doctest::Approx(2));
    CHECK(step_time({}, false).count() == 0);
  }

  TEST_CASE("a stream's step time is the mean of the middle third") {
    // n = 6: E(4) = 8, E(2) = 5, so (8 - 5)/2. The fourth ends before the third: E is a running maximum.
    const std::vector<StepRecord> units{unit(0, 4), unit(0, 5), unit(0, 8),
                                        unit(0, 7), unit(0, 9), unit(0, 20)};
    CHECK(step_time(units, true).count() == doctest::Approx(1.5));
    // Fewer than 6: the whole epoch, 12 s for 4 mini-batches.
    const std::vector<StepRecord> few{unit(0, 3), unit(0, 6), unit(0, 9), unit(0, 12)};
    CHECK(step_time(few, true).count() == doctest::Approx(3));
  }

  TEST_CASE("bubble, throughput and predicted beside measured") {
    // Steps of 2 s after warm-up; busy 1.5 and 0.5 of them: bubble 1 - 2/(2*2) = 0.5; per worker 0.25 and 0.75.
    std::vector<StepRecord> units;
    for (int i = 1; i <= 6; ++i) units.push_back(unit(0, 2 * i));
    WorkerRecord first, second;
    first.busy.assign(6, Seconds(1.5));
    first.sent = Bytes(600);
    first.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(0.25));
    second.busy.assign(6, Seconds(0.5));
    second.peak = Bytes(150);
    const std::vector<const WorkerRecord*> records{&first, &second};
    RunReport report;
    report.plan = two_workers();
    report.plan.predicted.stages.resize(1);
    report.plan.predicted.stages[0].forward = Seconds(0.2);
    report.plan.predicted.micro_batch_scale = {1, 1.5, 0.5};
    report.steps = 6;
    add_measurements(report, units, records);
    CHECK(report.last_steps.samples.empty());  // no operation was written down
    CHECK(report.steps == 6);
    CHECK(report.step.count() == doctest::Approx(2));
    CHECK(report.samples_per_s == doctest::Approx(4));
    CHECK(report.bubble_fraction == doctest::Approx(0.5));
    REQUIRE(report.workers.size() == 2);
    CHECK(report.workers[0].bubble_fraction == doctest::Approx(0.25));
    CHECK(report.workers[1].bubble_fraction == doctest::Approx(0.75));
    CHECK(report.workers[0].sent_per_step == Bytes(100));
    REQUIRE(report.op_times.size() == 1);
    CHECK(report.op_times[0] == OpTime{plan::OpKind::forward, StageId{0}, 1, Seconds(0.2), Seconds(0.25)});
    REQUIRE(report.comparisons.size() == 7);
    CHECK(report.comparisons[0] == Comparison{"step_s", 1, 2, 2});
    CHECK(report.comparisons[1] == Comparison{"samples_per_s", 8, 4, 0.5});
    CHECK(report.comparisons[2] == Comparison{"bubble_fraction", 0, 0.5, 0});  // nothing predicted: ratio 0
    CHECK(report.comparisons[5] == Comparison{"worker_1_busy_s", 0.5, 0.5, 1});
    CHECK(report.comparisons[6] == Comparison{"worker_1_peak_bytes", 100, 150, 1.5});
  }

  TEST_CASE("each replica of a stage has its own median, beside that of the stage") {
    plan::Plan plan = two_workers();
    plan.stages.resize(1);
    plan.stages[0].workers = {WorkerId{1}, WorkerId{0}};
    WorkerRecord first, second;
    first.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(0.25));
    for (const double time : {0.5, 0.75, 0.5})
      second.op_times[{plan::OpKind::forward, StageId{0}}].add(Seconds(time));
    const std::vector<const WorkerRecord*> records{&first, &second};
    const std::vector<OpTime> times = op_times(plan, records);
    REQUIRE(times.size() == 1);
    CHECK(times[0].median == Seconds(0.5));
    CHECK(times[0].replicas == std::vector<Seconds>{Seconds(0.5), Seconds(0.25)});
  }

  TEST_CASE("the steps that are written down have their samples, a partial mini-batch too") {
    std::vector<StepRecord> units;
    for (int i = 1; i <= 4; ++i) units.push_back(unit(0, 2 * i));
    units.back().samples = 3;
    WorkerRecord first, second;
    for (int step = 0; step < 4; ++step)
      first.ops.push_back(
          {{WorkerId{0}, {plan::OpKind::forward, StageId{0}, step}, Seconds(2 * step), Seconds(2 * step + 1)},
           step,
           Bytes(1),
           Bytes(1)});
    const std::vector<const WorkerRecord*> records{&first, &second};
    RunReport report;
    report.plan = two_workers();
    add_measurements(report, units, records);
    CHECK(report.last_steps.first_step == 3);
    CHECK(report.last_steps.samples == std::vector{8, 3});
  }

  TEST_CASE("a prediction so small that the ratio overflows has none: JSON knows no infinity") {
    RunReport report;
    report.plan = two_workers();
    report.plan.predicted.step = Seconds(5e-324);
    const WorkerRecord first, second;
    const std::vector<const WorkerRecord*> records{&first, &second};
    const std::vector<StepRecord> units{unit(0, 1), unit(0, 2), unit(0, 3), unit(0, 4)};
    add_measurements(report, units, records);
    CHECK(report.comparisons.at(0) == Comparison{"step_s", 5e-324, 1, 0});
  }

  TEST_CASE("throughput counts the samples of the steps that are timed, however many mini-batches they have") {
    // Four mini-batches of 8 a step, and one that is left over: 32 and 8 samples, in 4 and 1 s.
    std::vector<StepRecord> units;
    double end = 0;
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (const int samples : {32, 32, 32, 8})
        units.push_back({epoch, 0.5, samples, Seconds(end += samples / 8)});
    }
    CHECK(step_samples(units, false) == 32);
    WorkerRecord worker;
    worker.busy.assign(units.size(), Seconds(2));
    RunReport report;
    report.plan = two_workers();
    report.steps = 16;
    add_measurements(report, units, std::vector<const WorkerRecord*>{&worker, &worker});
    CHECK(report.samples_per_s == doctest::Approx(8));
    CHECK(report.comparisons[0] == Comparison{"step_s", 4, 4, 1});
    // An epoch that is one step, of 23 mini-batches of which the last has 6 of 8 samples.
    const std::vector<StepRecord> whole{{0, 0.5, 182, Seconds(182)}, {1, 0.5, 182, Seconds(364)}};
    report = {};
    report.plan = two_workers();
    report.steps = 2;
    add_measurements(report, whole, std::vector<const WorkerRecord*>{&worker, &worker});
    CHECK(report.samples_per_s == doctest::Approx(1));
  }

  TEST_CASE("a list that keeps the last ones has at most so many, and at least three quarters of it") {
    std::vector<int> list;
    for (int i = 0; i < 1000; ++i) {
      keep_last(list, i, 8);
      REQUIRE(list.size() <= 8);
      REQUIRE(list.size() >= std::min<std::size_t>(6, static_cast<std::size_t>(i) + 1));
      REQUIRE(list.back() == i);
      REQUIRE(list.front() == i + 1 - static_cast<int>(list.size()));
    }
  }

  TEST_CASE("the trace holds every recorded operation") {
    WorkerRecord worker;
    const plan::Op op{plan::OpKind::forward, StageId{0}, 3};
    worker.ops.push_back({{WorkerId{0}, op, Seconds(1), Seconds(2)}, 0, Bytes(0), Bytes(0)});
    const std::vector<const WorkerRecord*> records{&worker};
    RunReport report;
    report.context = {{"clocks", "rank 1: a \"b\""}};
    const std::string trace = make_trace(records, report);
    CHECK(trace.find(R"("otherData":{"clocks":"rank 1: a \"b\""})") != std::string::npos);
    CHECK(parse_json(trace).is_object());
    CHECK(trace.find("F0.3") != std::string::npos);
  }

  TEST_CASE("the median of many times is kept in bounded memory") {
    TimeSample sample;
    for (int i = 0; i < 100000; ++i) sample.add(Seconds(i % 1000));
    CHECK(sample.count() == 100000);
    CHECK(sample.median().count() == doctest::Approx(500).epsilon(0.05));
  }

  TEST_CASE("the median of few times is exact") {
    CHECK(median({Seconds(3), Seconds(1), Seconds(2)}) == Seconds(2));
    CHECK(median({}) == Seconds(0));
  }

  TEST_CASE("latency is the median from the first forward to the end of the last, delay counts who entered") {
    // Two stages. Frame 4 is in from 0 to 3, 5 from 1 to 4, 6 from 2 to 8; of frame 3 only the end is known.
    // At 3 frames 5 and 6 have entered behind 4; frame 7 enters at 5, before 6 leaves.
    WorkerRecord first, last;
    first.ops = {forward(0, 4, 0, 1), forward(0, 5, 1, 2), forward(0, 6, 2, 3), forward(0, 7, 5, 6)};
    last.ops = {forward(1, 3, 1, 2), forward(1, 4, 2, 3), forward(1, 5, 3, 4), forward(1, 6, 4, 8)};
    const std::vector<const WorkerRecord*> records{&first, &last};
    const FramesReport report = frames_report(records, 2);
    CHECK(report.latency.count() == doctest::Approx(3));  // of 3, 3, 6
    CHECK(report.delay == 2);
  }
}

}  // namespace build_test
