// The lists of every generator, written out for small cases. What papers print is taken from them; the rest is
// derived by hand from the rules beside each case.
#include "libplan/schedule/schedule.h"
#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::lists_test {
namespace {

using Texts = std::vector<std::string>;
using test::error_of;

/// One worker per line, without AR and U; one-stage lists in the short form `F0 B0`.
Texts short_lists(const ScheduleRequest& request, int length = 0) {
  Texts result;
  for (const Program& program : program_set(request, length).workers) {
    std::string text;
    for (const Op& op : program) {
      if (!has_micro_batch(op.kind)) continue;
      text.append(text.empty() ? "" : " ").append(name_of(op.kind)).append(std::to_string(op.micro_batch));
    }
    result.push_back(text);
  }
  return result;
}

/// In full, AR and U included.
Texts lists(const ScheduleRequest& request, int length = 0) {
  Texts result;
  for (const Program& program : program_set(request, length).workers) result.push_back(to_text(program));
  return result;
}

ScheduleRequest request(const std::string& name, int workers, int micro_batches) {
  return {name, std::vector<int>(at(workers), 1), micro_batches, WindowRule::win, {}};
}

std::vector<std::string> texts(const ScheduleRequest& request) {
  std::vector<std::string> result;
  for (const WorkerProgram& worker : make_schedule(request).workers) {
    result.push_back(worker.stream ? to_text(worker.stream->prologue) + " | " + to_text(worker.stream->body) +
                                         " | " + std::to_string(worker.stream->period)
                                   : to_text(worker.program));
  }
  return result;
}

TEST_SUITE("libplan/schedule/lists") {
  TEST_CASE("dapple's windows keep to the limits and never grow from one stage to the next") {
    // PB wants 5, 3, 1. With limits 2, 4, 4: k_0 = 2, k_1 = min(3, 4, k_0) = 2, k_2 = 1.
    ScheduleRequest what = request("dapple-pb", 3, 3);
    what.in_flight_limits = {2, 4, 4};
    CHECK(short_lists(what) == Texts{"F0 F1 B0 F2 B1 B2", "F0 F1 B0 F2 B1 B2", "F0 B0 F1 B1 F2 B2"});
    what.in_flight_limits = {1, 0, 1};
    CHECK(test::error_of([&] { make_schedule(what); }) ==
          "schedule dapple-pb: stage 1 cannot hold one micro-batch; lower the micro-batch size or recompute");
  }

  TEST_CASE("dapple splits every micro-batch over the replicas") {
    ScheduleRequest what = request("dapple-pa", 2, 2);
    what.replicas = {2, 1};
    CHECK(lists(what) ==
          Texts{"F0.0 F0.1 B0.0 B0.1 AR0 U0", "F0.0 F0.1 B0.0 B0.1 AR0 U0", "F1.0 B1.0 F1.1 B1.1 U1"});
  }

  TEST_CASE("gpipe-reverse, data-parallel, hybrid, naive") {
    CHECK(short_lists(request("gpipe-reverse", 2, 3)) == Texts(2, "F0 F1 F2 B2 B1 B0"));
    ScheduleRequest data = request("data-parallel", 1, 4);
    data.replicas = {3};
    CHECK(lists(data) == Texts{"F0.0 B0.0 F0.3 B0.3 AR0 U0", "F0.1 B0.1 AR0 U0", "F0.2 B0.2 AR0 U0"});
    // Two pipelines of two stages: the first takes micro-batches 0 and 2, the second 1 and 3.
    ScheduleRequest hybrid = request("hybrid", 2, 4);
    hybrid.replicas = {2, 2};
    CHECK(short_lists(hybrid) == Texts{"F0 F2 B0 B2", "F1 F3 B1 B3", "F0 B0 F2 B2", "F1 B1 F3 B3"});
    CHECK(lists(request("naive", 2, 1)) == Texts{"F0.0 B0.0 U0", "F1.0 B1.0 U1"});
  }

  TEST_CASE("groups of interleaved: whole, or a last one that fills the pipeline; others are refused") {
    ScheduleRequest what = request("interleaved", 4, 6);
    what.group = 6;
    CHECK_NOTHROW(validate(program_set(what)));
    what.micro_batches = 9;
    what.group = 5;  // 9 = 5 + 4, and 4 workers are filled
    CHECK_NOTHROW(validate(program_set(what)));
    const auto refusal = [&](int m, int group) {
      what.micro_batches = m;
      what.group = group;
      return test::error_of([&] { make_schedule(what); });
    };
    CHECK(refusal(8, 2) == "schedule interleaved: group = 2 is less than 4 workers; use 4");
    CHECK(refusal(7, 5) ==
          "schedule interleaved: group = 5 leaves a last group of 2 micro-batches, less than 4 workers; use 7");
    CHECK(refusal(4, 8) == "schedule interleaved: group = 8 is more than micro_batches = 4; use 4");
    CHECK(refusal(3, 0) ==
          "schedule interleaved: micro_batches = 3 is not a multiple of 4 workers; use 4, or group = 3");
  }

  TEST_CASE("chimera, K = 2, M = 2: micro-batch 0 goes down, 1 goes up") {
    // Slots: down F(s,0) at s, B(s,0) at 3-s on worker s; up F(s,1) at s, B(s,1) at 3-s on worker 1-s.
    CHECK(lists(request("chimera", 2, 2)) ==
          Texts{"F0.0 F1.1 B1.1 B0.0 AR0 AR1 U0 U1", "F0.1 F1.0 B1.0 B0.1 AR0 AR1 U0 U1"});
  }

  TEST_CASE("2bw updates after every m backwards") {
    // K = 2, m = 2, eight micro-batches: worker 0 has one forward of warm-up.
    CHECK(lists(request("2bw", 2, 2), 4) == Texts{"F0.0 F0.1 B0.0 F0.2 B0.1 U0 F0.3 B0.2 B0.3 U0",
                                                  "F1.0 B1.0 F1.1 B1.1 U1 F1.2 B1.2 F1.3 B1.3 U1"});
    CHECK(test::error_of([] { make_schedule(request("2bw", 4, 3)); }) ==
          "schedule 2bw: micro_batches = 3 per update is less than 4 stages");
  }

  TEST_CASE("replicas around a parameter server take turns and reduce nothing") {
    ScheduleRequest what = request("parameter-server", 1, 3);
    what.replicas = {2};
    CHECK(lists(what) == Texts{"F0.0 B0.0 F0.2 B0.2 U0", "F0.1 B0.1 U0"});
    for (const char* name : {"downpour", "ssp", "hogwild"}) {
      what.name = name;
      what.micro_batches = 1;
      CHECK(lists(what, 4) == Texts{"F0.0 B0.0 U0 F0.2 B0.2 U0", "F0.1 B0.1 U0 F0.3 B0.3 U0"});
    }
    ProgramSet set = program_set(what, 2);
    validate(set);
    set.workers[1] = parse_program("F0.1 B0.1 AR0 U0");
    CHECK(test::error_of([&] { validate(set); }) ==
          "worker 1: AR0 is listed, but a parameter server joins the gradients; leave it out");
    what.replicas = {1, 1};
    CHECK(test::error_of([&] { make_schedule(what); }) ==
          "schedule hogwild: 2 stages; every replica holds the whole model, give one stage with all replicas");
  }

  TEST_CASE("partime: stage s sees frame 0 at step s, its first gradient at step 2(N-1)-s") {
    // Three stages, two frames: stage 0 runs F at steps 0, 1; a gradient would reach it at step 4, when no
    // frame is left. Stage 1: F at 1, 2, gradient from step 3 on. Stage 2: F and B at 2, 3.
    CHECK(lists(request("partime", 3, 1), 2) == Texts{"F0.0 F0.1", "F1.1 F1.2", "F2.2 B2.2 U2 F2.3 B2.3 U2"});
    // With five frames stage 0 runs B at step 4, stage 1 at 3, 4, 5.
    CHECK(lists(request("partime", 3, 1), 5) ==
          Texts{"F0.0 F0.1 F0.2 F0.3 F0.4 B0.4 U0", "F1.1 F1.2 F1.3 B1.3 U1 F1.4 B1.4 U1 F1.5 B1.5 U1",
                "F2.2 B2.2 U2 F2.3 B2.3 U2 F2.4 B2.4 U2 F2.5 B2.5 U2 F2.6 B2.6 U2"});
  }

  TEST_CASE("inference and token generation have forwards only") {
    CHECK(lists(request("inference", 2, 3)) == Texts{"F0.0 F0.1 F0.2", "F1.0 F1.1 F1.2"});
    ScheduleRequest what = request("generation", 2, 2);
    what.token_count = 2;
    CHECK(lists(what) == Texts{"F0.0 F0.1 F0.2 F0.3", "F1.0 F1.1 F1.2 F1.3"});
  }

  TEST_CASE(
      "harmony-pp: tasks go round, weights are loaded for a task and stay for the next one that needs them") {
    // Two workers, stages 0 and 1, a pack each. Tasks: F(0) on worker 0; fused F, B(1) on worker 1; R, B(0) on
    // worker 0, where the weights of stage 0 still are.
    CHECK(lists(request("harmony-pp", 2, 2)) ==
          Texts{"L0 F0.0 F0.1 R0.0 B0.0 R0.1 B0.1 U0 E0", "L1 F1.0 B1.0 F1.1 B1.1 U1 E1"});
    // Three stages on two workers (v would be 1.5; give four and packs): forward packs 2|2, backward packs 1|3.
    ScheduleRequest what = request("harmony-pp", 2, 1);
    what.chunks_per_worker = 2;
    what.forward_packs = {2, 2};
    what.backward_packs = {1, 3};
    // The last backward pack holds stages 1..3, so the forward packs shrink to stage 0 alone.
    CHECK(lists(what) ==
          Texts{"L0 F0.0 R0.0 B0.0 U0 E0", "L1 L2 L3 F1.0 F2.0 F3.0 B3.0 B2.0 B1.0 U1 U2 U3 E1 E2 E3"});
    what.backward_packs = {1, 2};
    CHECK(test::error_of([&] { make_schedule(what); }) ==
          "schedule harmony-pp: backward packs hold 3 stages; there are 4");
  }

  TEST_CASE("harmony-dp: every worker runs all tasks on its own micro-batches and reduces before each update") {
    CHECK(lists(request("harmony-dp", 2, 2)) ==
          Texts{"L0 F0.0 E0 L1 F1.0 B1.0 AR1 U1 E1 L0 R0.0 B0.0 AR0 U0 E0",
                "L0 F0.1 E0 L1 F1.1 B1.1 AR1 U1 E1 L0 R0.1 B0.1 AR0 U0 E0"});
    // Loaded a task ahead: stage 1 before F0, stage 0 again before F1.
    ScheduleRequest ahead = request("harmony-dp", 2, 2);
    ahead.prefetch = true;
    CHECK(lists(ahead).front() == "L0 L1 F0.0 E0 L0 F1.0 B1.0 AR1 U1 E1 R0.0 B0.0 AR0 U0 E0");
    validate(program_set(ahead));
  }

  TEST_CASE("recompute stands directly before the backward, per stage and per mode") {
    ScheduleRequest what = request("gpipe", 2, 2);
    what.recompute = {Recompute::always, Recompute::except_last};
    CHECK(lists(what) == Texts{"F0.0 F0.1 R0.0 B0.0 R0.1 B0.1 U0", "F1.0 F1.1 R1.0 B1.0 B1.1 U1"});
    what = request("zb-h1", 1, 1);
    what.recompute = {Recompute::always};
    CHECK(lists(what) == Texts{"F0.0 R0.0 I0.0 W0.0 U0"});
    what = request("pipedream", 1, 1);
    what.recompute = {Recompute::except_last};
    CHECK(test::error_of([&] { make_schedule(what); }) ==
          "schedule pipedream: recompute except_last needs a last micro-batch, a stream has none; use always "
          "or never");
  }

  TEST_CASE("swaps and clock steps in the wrong place are refused") {
    ProgramSet swapped = program_set(request("harmony-pp", 2, 2));
    const auto refusal = [&](const std::string& text) {
      swapped.workers[0] = parse_program(text);
      return test::error_of([&] { validate(swapped); });
    };
    CHECK(refusal("L0 F0.0 F0.1 E0 R0.0 B0.0 R0.1 B0.1 U0") ==
          "worker 0, operation 4 (R0.0): the weights of stage 0 are not loaded; L0 must come first");
    CHECK(refusal("L0 F0.0 F0.1 R0.0 B0.0 R0.1 B0.1 U0") ==
          "worker 0: the weights of stage 0 stay loaded; end with E0");
    CHECK(refusal("L0 F0.0 F0.1 R0.0 B0.0 E0 L0 R0.1 B0.1 U0 E0") ==
          "worker 0, operation 5 (E0): the gradients of stage 0 would be lost; U0 must come first");
    ProgramSet standard = test::straight("gpipe", 1, 1);
    standard.workers[0] = parse_program("L0 F0.0 B0.0 U0");
    CHECK(test::error_of([&] { validate(standard); }) ==
          "worker 0, operation 0 (L0): weights stay on their worker here; leave it out");
    ProgramSet clocked = program_set(request("partime", 1, 1), 2);
    CHECK(to_text(clocked.workers[0]) == "F0.0 B0.0 U0 F0.1 B0.1 U0");
    clocked.workers[0] = parse_program("F0.0 B0.0 F0.1 U0 B0.1 U0");
    CHECK(test::error_of([&] { validate(clocked); }) ==
          "worker 0, operation 2 (F0.1): U0 of the step before must come first");
  }

  TEST_CASE("gpipe gives every replica its round-robin share and an all-reduce, also without micro-batches") {
    CHECK(texts({"gpipe", {3, 1}, 2, WindowRule::win, {}}) ==
          Texts{"F0.0 B0.0 AR0 U0", "F0.1 B0.1 AR0 U0", "AR0 U0", "F1.0 F1.1 B1.0 B1.1 U1"});
  }

  TEST_CASE("1f1b with replicas takes the window per replica") {
    // 2-1: win = 1 + ceil(1*1/2) = 2 and 1. M = 5: replica 0 runs 0, 2, 4, replica 1 runs 1, 3.
    CHECK(texts({"1f1b", {2, 1}, 5, WindowRule::win, {}}) ==
          Texts{"F0.0 F0.2 B0.0 F0.4 B0.2 B0.4 AR0 U0", "F0.1 F0.3 B0.1 B0.3 AR0 U0",
                "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F1.4 B1.4 U1"});
  }

  TEST_CASE("pipedream is a stream: prologue, body with an update after the backward, period of the replicas") {
    CHECK(texts({"pipedream", {1, 1, 1}, 1, WindowRule::win, {}}) ==
          Texts{"F0.0 F0.1 | F0.2 B0.0 U0 | 1", "F1.0 | F1.1 B1.0 U1 | 1", " | F2.0 B2.0 U2 | 1"});
    CHECK(texts({"pipedream", {2, 1}, 1, WindowRule::published, {}}) ==
          Texts{"F0.0 | F0.2 B0.0 AR0 U0 | 2", "F0.1 | F0.3 B0.1 AR0 U0 | 2", " | F1.0 B1.0 U1 | 1"});
  }

  TEST_CASE("windows agree without replicas and follow the next stage's demand with them") {
    const auto of = [](WindowRule rule, std::vector<int> replicas) { return windows(rule, replicas); };
    using Counts = std::vector<int>;
    CHECK(of(WindowRule::win, {1, 1, 1, 1}) == Counts{4, 3, 2, 1});
    CHECK(of(WindowRule::published, {1, 1, 1, 1}) == Counts{4, 3, 2, 1});
    CHECK(of(WindowRule::wide, {1, 1, 1, 1}) == Counts{7, 5, 3, 1});
    // 7-8-1: published ceil(16/7), ceil(9/8), 1; win 1 + ceil(1/8) = 2, 1 + ceil(2*8/7) = 4.
    CHECK(of(WindowRule::published, {7, 8, 1}) == Counts{3, 2, 1});
    CHECK(of(WindowRule::win, {7, 8, 1}) == Counts{4, 2, 1});
    // 1-4-1: published 6, ceil(5/4), 1; win 1 + 2*4 = 9.
    CHECK(of(WindowRule::published, {1, 4, 1}) == Counts{6, 2, 1});
    CHECK(of(WindowRule::win, {1, 4, 1}) == Counts{9, 2, 1});
    CHECK(of(WindowRule::win, {}).empty());
  }

  TEST_CASE("every generated set is valid") {
    const std::vector<std::vector<int>> vectors{{1},    {4},       {1, 1},    {2, 1},    {1, 2},
                                                {3, 2}, {2, 3, 1}, {1, 4, 1}, {2, 2, 2}, {4, 3, 2, 1}};
    for (const auto& replicas : vectors) {
      for (const WindowRule rule : {WindowRule::published, WindowRule::win}) {
        for (const int m : {1, 2, 5, 12, 13}) {
          CHECK_NOTHROW(validate(program_set({"gpipe", replicas, m, rule, {}})));
          CHECK_NOTHROW(validate(program_set({"1f1b", replicas, m, rule, {}})));
        }
        CHECK_NOTHROW(validate(program_set({"pipedream", replicas, 1, rule, {}}, 24)));
      }
    }
  }

  TEST_CASE("requests that no schedule can serve are refused with the limit") {
    const auto refusal = [](const ScheduleRequest& request) {
      return error_of([&] { make_schedule(request); });
    };
    CHECK(refusal({"gpipe", {}, 4, WindowRule::win, {}}) ==
          "schedule gpipe: no stages; give the replicas of at least one");
    CHECK(refusal({"1f1b", {1, 0}, 4, WindowRule::win, {}}) ==
          "schedule 1f1b: stage 1 has 0 replicas; give it at least 1");
    CHECK(refusal({"1f1b", {1, 1}, 0, WindowRule::win, {}}) ==
          "schedule 1f1b: micro_batches = 0; give at least 1");
    CHECK(refusal({"1f1b", {1, 1}, 4, WindowRule::explicit_list, {2}}) ==
          "schedule 1f1b: 1 windows for 2 stages; give one per stage");
    CHECK(refusal({"pipedream", {1, 1}, 1, WindowRule::explicit_list, {2, 0}}) ==
          "schedule pipedream: stage 1 has a window of 0 micro-batches; give at least 1");
    CHECK(refusal({"pipedream", {1, 1}, 4, WindowRule::win, {}}) ==
          "schedule pipedream: updates after every micro-batch and needs micro_batches = 1, found 4");
    CHECK(error_of([] { require_schedule("pipe"); })
              .starts_with("schedule: unknown name \"pipe\"; did you mean gpipe? Use one of naive, "
                           "data-parallel, gpipe, "));
  }

  TEST_CASE("a round is the least common multiple, or that of as many replica counts as are affordable") {
    CHECK(stream_round(std::vector{2, 3, 4}, 1, 12) == 12);
    CHECK(stream_round(std::vector{2, 3}, 4, 12) == 12);
    // 13 * 11 = 143, times 9 = 1287, times 7 = 9009, with 4 36,036.
    const std::vector<int> five{4, 13, 9, 7, 11};
    CHECK(stream_round(five, 1, 36'036) == 36'036);
    CHECK(stream_round(five, 1, 36'035) == 9009);
    CHECK(stream_round(five, 1, 9008) == 5148);  // without 7, with 4
    CHECK(stream_round(five, 1, 5) == 13);
    // Their product is beyond 64 bits.
    CHECK(stream_round(std::vector{65'521, 65'519, 65'497, 65'479}, 1, 100'000) == 65'521);
    CHECK(error_of([] {
            stream_round(std::vector{65'521}, 65'519, 10);
          }).starts_with("a stage of 65521 replicas and updates of 65519 micro-batches take turns over"));
  }

  TEST_CASE("an epoch that leaves replicas without partners is refused with the nearest lengths") {
    const auto refusal = [](std::vector<int> replicas, int length) {
      return error_of([&] { check_stream_length(replicas, length); });
    };
    CHECK(refusal({4}, 10) ==
          "schedule pipedream: 10 mini-batches are not a multiple of the 4 replicas of stage 0; use 8 or 12, "
          "or --drop-last");
    // 2-3: both must divide, so multiples of 6.
    CHECK(refusal({2, 3}, 10) ==
          "schedule pipedream: 10 mini-batches are not a multiple of the 3 replicas of stage 1; use 6 or 12, "
          "or --drop-last");
    CHECK(refusal({4}, 3) ==
          "schedule pipedream: 3 mini-batches are not a multiple of the 4 replicas of stage 0; use 4, or "
          "--drop-last");
    CHECK(refusal({2, 3, 1}, 12) == "");
    CHECK(refusal({1, 1}, 7) == "");
  }
}

}  // namespace
}  // namespace pp::plan::lists_test
