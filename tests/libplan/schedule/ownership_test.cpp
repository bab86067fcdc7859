#include "libplan/schedule/placement.h"

#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::ownership_test {
namespace {

using test::error_of;
using test::straight;
using test::written;

/// What the two checks of a plan say; the first one accepts the sets of this file.
std::string refusal(const ProgramSet& set) {
  CHECK(error_of([&] { validate(set); }).empty());
  return error_of([&] { check_owners(set); });
}

ProgramSet streamed(const std::vector<std::string>& programs, int micro_batches) {
  ProgramSet set = written(programs, {{0, 1}}, micro_batches);
  set.synchronous = false;
  return set;
}

}  // namespace

TEST_SUITE("libplan/schedule/ownership") {
  TEST_CASE("whatever one worker runs is accepted: any replicas' order, and Chimera's copies") {
    CHECK(refusal(straight("1f1b", 3, 4)) == "");
    CHECK(refusal(straight("chimera", 4, 8)) == "");
    CHECK(refusal(program_set({.name = "gpipe", .replicas = {3, 1}, .micro_batches = 7})) == "");
    CHECK(refusal(program_set({.name = "pipedream", .replicas = {2, 3, 1}}, 12)) == "");
    CHECK(refusal(written({"F0.0 F0.1 B0.0 B0.1 AR0 U0", "F0.2 B0.2 AR0 U0"}, {{0, 1}}, 3)) == "");
  }

  TEST_CASE("a micro-batch that all replicas list is refused by the second worker's operation") {
    CHECK(
        refusal(written({"F0.0 B0.0 F0.1 B0.1 AR0 U0", "F0.1 B0.1 AR0 U0"}, {{0, 1}}, 2)) ==
        "worker 1, operation 0 (F0.1): worker 0 runs this micro-batch; replicas that split one cannot be run: "
        "list it on one worker");
    CHECK(
        refusal(program_set({.name = "dapple-pa", .replicas = {2, 1}, .micro_batches = 2})) ==
        "worker 1, operation 0 (F0.0): worker 0 runs this micro-batch; replicas that split one cannot be run: "
        "list it on one worker");
  }

  TEST_CASE("copies of two stages on the same workers share nothing either") {
    CHECK(refusal(written({"F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1", "F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1"},
                          {{0, 1}, {0, 1}}, 1))
              .starts_with("worker 1, operation 0 (F0.0): worker 0 runs this micro-batch"));
  }

  TEST_CASE("workers of a stream take turns, in ascending order") {
    // Updates follow each backward: four micro-batches on two replicas, two rounds.
    CHECK(refusal(streamed({"F0.0 B0.0 AR0 U0 F0.2 B0.2 AR0 U0", "F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) ==
          "");
    CHECK(refusal(streamed({"F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0", "F0.0 B0.0 AR0 U0 F0.2 B0.2 AR0 U0"}, 4)) ==
          "");
    CHECK(refusal(streamed({"F0.0 B0.0 AR0 U0 F0.1 B0.1 AR0 U0", "F0.2 B0.2 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 4 (F0.1): workers of a stream take turns, in ascending order: F0.2 comes here");
    CHECK(refusal(streamed({"F0.2 B0.2 AR0 U0 F0.0 B0.0 AR0 U0", "F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 0 (F0.2): workers of a stream take turns, in ascending order: F0.0 comes here");
    CHECK(refusal(streamed({"F0.0 F0.2 B0.2 AR0 U0 B0.0 AR0 U0", "F0.1 F0.3 B0.1 AR0 U0 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 2 (B0.2): workers of a stream take turns, in ascending order: B0.0 comes here");
  }
}

}  // namespace pp::plan::ownership_test
