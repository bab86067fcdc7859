#include "libplan/schedule/schedule.h"
#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::error_of;

std::vector<std::string> texts(const ScheduleRequest& request) {
  std::vector<std::string> result;
  for (const WorkerProgram& worker : make_schedule(request).workers) {
    result.push_back(worker.stream ? to_text(worker.stream->prologue) + " | " + to_text(worker.stream->body) +
                                         " | " + std::to_string(worker.stream->period)
                                   : to_text(worker.program));
  }
  return result;
}

using Texts = std::vector<std::string>;

TEST_SUITE("libplan/schedule/generators") {
  TEST_CASE("gpipe runs all forwards, then all backwards in the same order") {
    CHECK(texts({"gpipe", {1, 1}, 3, WindowRule::win, {}}) ==
          Texts{"F0.0 F0.1 F0.2 B0.0 B0.1 B0.2 U0", "F1.0 F1.1 F1.2 B1.0 B1.1 B1.2 U1"});
  }

  TEST_CASE("gpipe gives every replica its round-robin share and an all-reduce, also without micro-batches") {
    CHECK(texts({"gpipe", {3, 1}, 2, WindowRule::win, {}}) ==
          Texts{"F0.0 B0.0 AR0 U0", "F0.1 B0.1 AR0 U0", "AR0 U0", "F1.0 F1.1 B1.0 B1.1 U1"});
  }

  TEST_CASE("1f1b fills its window, alternates and drains") {
    // K = 3, M = 5: windows 3, 2, 1.
    CHECK(texts({"1f1b", {1, 1, 1}, 5, WindowRule::win, {}}) ==
          Texts{"F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 F0.4 B0.2 B0.3 B0.4 U0",
                "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 F1.4 B1.3 B1.4 U1",
                "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3 F2.4 B2.4 U2"});
  }

  TEST_CASE("1f1b with fewer micro-batches than its window is gpipe") {
    for (const int m : {1, 2}) {
      Texts gpipe = texts({"gpipe", {1, 1, 1}, m, WindowRule::win, {}});
      Texts flush = texts({"1f1b", {1, 1, 1}, m, WindowRule::win, {}});
      CHECK(flush.front() == gpipe.front());
    }
  }

  TEST_CASE("1f1b with replicas takes the window per replica") {
    // 2-1: win = 1 + ceil(1*1/2) = 2 and 1. M = 5: replica 0 runs 0, 2, 4, replica 1 runs 1, 3.
    CHECK(texts({"1f1b", {2, 1}, 5, WindowRule::win, {}}) ==
          Texts{"F0.0 F0.2 B0.0 F0.4 B0.2 B0.4 AR0 U0", "F0.1 F0.3 B0.1 B0.3 AR0 U0",
                "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F1.4 B1.4 U1"});
  }

  TEST_CASE("1f1b with the wide window is DAPPLE's PB, with an explicit one what was asked") {
    // K = 2: wide windows 3 and 1.
    CHECK(texts({"1f1b", {1, 1}, 4, WindowRule::wide, {}}) ==
          Texts{"F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3 U0", "F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 U1"});
    CHECK(texts({"1f1b", {1, 1}, 2, WindowRule::explicit_list, {1, 1}}) ==
          Texts{"F0.0 B0.0 F0.1 B0.1 U0", "F1.0 B1.0 F1.1 B1.1 U1"});
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

  TEST_CASE("workers are numbered stage by stage") {
    const std::vector<int> replicas{2, 1, 3};
    CHECK(first_workers(replicas) == std::vector<int>{0, 2, 3, 6});
    CHECK(replicated_placement(replicas) ==
          std::vector<std::vector<WorkerId>>{
              {WorkerId{0}, WorkerId{1}}, {WorkerId{2}}, {WorkerId{3}, WorkerId{4}, WorkerId{5}}});
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

  TEST_CASE("the registry says what a schedule is") {
    REQUIRE(find_schedule("pipedream") != nullptr);
    CHECK_FALSE(find_schedule("pipedream")->synchronous);
    CHECK(find_schedule("pipedream")->default_policy() == WeightPolicy::stash);
    CHECK(find_schedule("1f1b")->synchronous);
    CHECK(find_schedule("nothing") == nullptr);
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
}  // namespace pp::plan
