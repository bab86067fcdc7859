// The lists of every generator, written out for small cases. What papers print is taken from them; the rest is
// derived by hand from the rules beside each case.
#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::lists_test {
namespace {

using Texts = std::vector<std::string>;

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

TEST_SUITE("libplan/schedule/lists") {
  TEST_CASE("1f1b and dapple-pa, K = 4, M = 6") {
    const Texts expected{"F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
                         "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"};
    CHECK(short_lists(request("1f1b", 4, 6)) == expected);
    CHECK(short_lists(request("dapple-pa", 4, 6)) == expected);
  }

  TEST_CASE("dapple-pb, K = 4, M = 8") {
    CHECK(short_lists(request("dapple-pb", 4, 8)) == Texts{"F0 F1 F2 F3 F4 F5 F6 B0 F7 B1 B2 B3 B4 B5 B6 B7",
                                                           "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 F7 B3 B4 B5 B6 B7",
                                                           "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7",
                                                           "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7"});
  }

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

  TEST_CASE("zb-h1, K = 4, M = 6") {
    CHECK(short_lists(request("zb-h1", 4, 6)) ==
          Texts{"F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5",
                "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5",
                "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5",
                "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5"});
  }

  TEST_CASE("zb-h2, K = 4, M = 8") {
    CHECK(short_lists(request("zb-h2", 4, 8)) ==
          Texts{"F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7",
                "F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7",
                "F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7",
                "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7"});
  }

  TEST_CASE("zb-v and dualpipe-v, K = 2, M = 4: worker 0 holds stages 0 and 3, worker 1 stages 1 and 2") {
    CHECK(lists(request("zb-v", 2, 4)) == Texts{"F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 F0.3 I0.0 W0.0 "
                                                "F3.2 I3.2 W3.2 I0.1 W0.1 F3.3 I3.3 W3.3 I0.2 "
                                                "W0.2 I0.3 W0.3 U0 U3",
                                                "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 "
                                                "F1.3 I1.1 W1.1 F2.3 I2.2 W2.2 I1.2 I2.3 I1.3 "
                                                "W1.2 W2.3 W1.3 U1 U2"});
    CHECK(
        lists(request("dualpipe-v", 2, 4)) ==
        Texts{
            "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 F0.3 B3.1 F3.2 B0.0 B3.2 F3.3 B0.1 B3.3 I0.2 W0.2 I0.3 W0.3 U0 "
            "U3",
            "F1.0 F2.0 F1.1 F2.1 F1.2 B2.0 F2.2 B1.0 F1.3 B2.1 F2.3 B1.1 B2.2 B1.2 I2.3 I1.3 W2.3 W1.3 U1 U2"});
  }

  TEST_CASE("interleaved and looped-bfs, K = 2, v = 2, M = 2") {
    // Order of turns: micro-batches 0, 1 of chunk 0, then of chunk 1; backwards the other way round. Worker 0
    // warms up with 2(2-0-1) + (2-1)*2 = 4 forwards, worker 1 with 2.
    CHECK(lists(request("interleaved", 2, 2)) == Texts{"F0.0 F0.1 F2.0 F2.1 B2.0 B2.1 B0.0 B0.1 U0 U2",
                                                       "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1 U1 U3"});
    CHECK(lists(request("looped-bfs", 2, 2)) == Texts{"F0.0 F0.1 F2.0 F2.1 B2.1 B2.0 B0.1 B0.0 U0 U2",
                                                      "F1.0 F1.1 F3.0 F3.1 B3.1 B3.0 B1.1 B1.0 U1 U3"});
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
}

}  // namespace
}  // namespace pp::plan::lists_test
