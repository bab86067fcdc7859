// Whole pipelines side by side: schedules that place their stages, with replicas.
#include <algorithm>
#include <map>

#include "libplan/schedule/generators.h"
#include "libplan/schedule/placement.h"
#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/schedule/side_by_side");

namespace pp::plan::side_by_side_test {
namespace {

using test::error_of;

ScheduleRequest request_of(const ScheduleRow& row, int places, int pipelines, int micro_batches, int chunks) {
  ScheduleRequest request{std::string(row.name), std::vector<int>(at(places), pipelines), micro_batches};
  request.chunks_per_worker = chunks;
  return request;
}

/// What one pipeline runs, in its own numbers, without the all-reduces.
Program own_numbers(const Program& program, int pipelines) {
  Program own;
  for (Op op : program) {
    if (op.kind == OpKind::all_reduce) continue;
    if (has_micro_batch(op.kind)) op.micro_batch /= pipelines;
    own.push_back(op);
  }
  return own;
}

Program without_reductions(Program program) {
  std::erase_if(program, [](const Op& op) { return op.kind == OpKind::all_reduce; });
  return program;
}

}  // namespace

TEST_CASE("two pipelines of two places with two stages each, written out") {
  ScheduleRequest request{"looped-bfs", {2, 2}, 2};
  request.chunks_per_worker = 2;
  const Schedule schedule = make_schedule(request);
  // Place 0 holds stages 0 and 2 and is workers 0 and 1; place 1 holds stages 1 and 3 and is workers 2 and 3.
  // Micro-batch 0 goes through the first pipeline, 1 through the second.
  using Workers = std::vector<WorkerId>;
  CHECK(schedule.stage_workers == std::vector<Workers>{{WorkerId{0}, WorkerId{1}},
                                                       {WorkerId{2}, WorkerId{3}},
                                                       {WorkerId{0}, WorkerId{1}},
                                                       {WorkerId{2}, WorkerId{3}}});
  CHECK(to_text(schedule.workers[0].program) == "F0.0 F2.0 B2.0 B0.0 AR0 AR2 U0 U2");
  CHECK(to_text(schedule.workers[1].program) == "F0.1 F2.1 B2.1 B0.1 AR0 AR2 U0 U2");
  CHECK(to_text(schedule.workers[3].program) == "F1.1 F3.1 B3.1 B1.1 AR1 AR3 U1 U3");
}

TEST_CASE("every pipeline of every such schedule runs what one alone runs on its share of the micro-batches") {
  std::map<std::string_view, int> made;
  for (const ScheduleRow& row : schedule_table()) {
    if (row.replication != Replication::pipelines || row.generate == nullptr) continue;
    for (int places = 1; places <= 4; ++places) {
      for (int chunks = 1; chunks <= 3; ++chunks) {
        for (int pipelines = 1; pipelines <= 3; ++pipelines) {
          for (const int share : {1, 4, 8}) {
            const ScheduleRequest one = request_of(row, places, 1, share, chunks);
            if (!error_of([&] { make_schedule(one); }).empty()) continue;
            CAPTURE(row.name);
            CAPTURE(places);
            CAPTURE(chunks);
            CAPTURE(pipelines);
            CAPTURE(share);
            const Schedule alone = make_schedule(one);
            const ScheduleRequest all = request_of(row, places, pipelines, share * pipelines, chunks);
            const Schedule schedule = make_schedule(all);
            const ProgramSet set = program_set(all);
            validate(set);
            check_owners(set);
            REQUIRE(schedule.workers.size() == alone.workers.size() * at(pipelines));
            for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
              const auto [place, pipeline] = std::div(static_cast<int>(w), pipelines);
              const Program& program = schedule.workers[w].program;
              CHECK(own_numbers(program, pipelines) == without_reductions(alone.workers[at(place)].program));
              for (const Op& op : program)
                if (has_micro_batch(op.kind)) CHECK(op.micro_batch % pipelines == pipeline);
            }
            ++made[row.name];
          }
        }
      }
    }
  }
  CHECK(made.size() == 7);  // all but auto-zb, whose programs follow the costs
  for (const auto& [name, count] : made) CHECK(count > 10);
}

TEST_CASE("pipelines side by side take as long as one with its share, and the all-reduces") {
  // Four stages of F 1 and B 2 on two places, four micro-batches each: interleaved takes
  // M v (F + B) + (K - 1)(F + B) = 4*2*3 + 3 = 27. Each place reduces its two stages one after the other, 5
  // each.
  const auto step = [](int pipelines, double all_reduce) {
    ScheduleRequest request{"interleaved", {pipelines, pipelines}, 4 * pipelines};
    request.chunks_per_worker = 2;
    SimulationInput input = test::equal_stages(program_set(request));
    for (StageCosts& stage : input.stages) stage.all_reduce = Seconds(all_reduce);
    input.all_reduce = AllReduceMode::blocking;
    return test::makespan(input);
  };
  CHECK(step(1, 0) == 27);
  CHECK(step(3, 0) == 27);
  CHECK(step(3, 5) == 37);
}

TEST_CASE("what does not divide, or differs, is refused with what would do") {
  const auto refusal = [](const char* name, std::vector<int> replicas, int micro_batches) {
    return error_of([&] { make_schedule({name, std::move(replicas), micro_batches}); });
  };
  CHECK(refusal("zb-h1", {2, 2}, 5) ==
        "schedule zb-h1: micro_batches = 5 is not a multiple of its 2 replicas; use 4 or 6");
  CHECK(refusal("zb-h1", {2, 1}, 4) ==
        "schedule zb-h1: stage 1 has 1 replicas, stage 0 has 2; give every stage the same number");
  CHECK(refusal("interleaved", {2, 2}, 6) ==
        "each of 2 pipelines: schedule interleaved: micro_batches = 3 is not a multiple of 2 workers; use 2 or "
        "4, or group = 3");
}

}  // namespace pp::plan::side_by_side_test

TEST_SUITE_END();
