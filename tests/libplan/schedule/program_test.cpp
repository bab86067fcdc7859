#include "libplan/schedule/program.h"

#include "tests/libplan/schedule/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::error_of;

TEST_SUITE("libplan/schedule/program") {
  TEST_CASE("every kind of operation survives the round trip through text") {
    const Program program{{OpKind::forward, StageId{0}, 0},
                          {OpKind::backward, StageId{12}, 345},
                          {OpKind::input_gradient, StageId{1}, 2},
                          {OpKind::weight_gradient, StageId{1}, 2},
                          {OpKind::recompute, StageId{3}, 2147483647},
                          {OpKind::all_reduce, StageId{3}, 0},
                          {OpKind::tied_all_reduce, StageId{0}, 1},
                          {OpKind::update, StageId{3}, 0}};
    const std::string text = "F0.0 B12.345 I1.2 W1.2 R3.2147483647 AR3 ARg1 U3";
    CHECK(to_text(program) == text);
    CHECK(parse_program(text) == program);
  }

  TEST_CASE("spaces and line ends of any number separate operations") {
    CHECK(to_text(parse_program("  F0.0\tF0.1\r\n\nB0.0 ")) == "F0.0 F0.1 B0.0");
    CHECK(parse_program("").empty());
    CHECK(parse_program(" \n").empty());
    CHECK(to_text(Program{}) == "");
  }

  TEST_CASE("an unknown kind is refused with its position and the kinds there are") {
    const std::string kinds = ": unknown kind; use F, B, I, W, R, AR, ARg, U, L, E";
    CHECK(error_of([] { parse_program("F0.0 F0.1 B0.0 G0.1"); }) == "operation 3, \"G0.1\"" + kinds);
    CHECK(error_of([] { parse_program("f0.0"); }) == "operation 0, \"f0.0\"" + kinds);
    CHECK(error_of([] { parse_program("0.0"); }) == "operation 0, \"0.0\"" + kinds);
    CHECK(error_of([] { parse_program("F+1.0"); }) == "operation 0, \"F+1.0\"" + kinds);
    CHECK(error_of([] { parse_program("FF0.0"); }) == "operation 0, \"FF0.0\"" + kinds);
  }

  TEST_CASE("a stage or micro-batch that is missing, negative, too large or not a number is refused") {
    for (const std::string token :
         {"F", "F1", "F.1", "F1.", "F-1.0", "F1.-1", "F1.0.0", "F1.2x", "F2147483648.0"}) {
      CAPTURE(token);
      CHECK(error_of([&] { parse_program(token); }) ==
            "operation 0, \"" + token + "\": F takes a stage and a micro-batch, as in F2.1");
    }
    for (const std::string token : {"AR", "AR0.0", "AR-1", "AR1x"}) {
      CAPTURE(token);
      CHECK(error_of([&] { parse_program("F0.0 " + token); }) ==
            "operation 1, \"" + token + "\": AR takes a stage and nothing else, as in AR2");
    }
    CHECK(error_of([] { parse_program("ARg0.1"); }) ==
          "operation 0, \"ARg0.1\": ARg takes a group and nothing else, as in ARg0");
  }

  TEST_CASE(
      "a stream is expanded by adding the period, and its end drops what lies beyond the last micro-batch") {
    const Stream stream{parse_program("F0.0 F0.2"), parse_program("F0.4 B0.0 AR0 U0"), 2};
    // J = 6, replica 0 of 2: iteration 0 is F4 B0, iteration 1 would be F6 B2, iteration 2 F8 B4; F6 and F8 are
    // beyond.
    CHECK(to_text(expand(stream, 6)) == "F0.0 F0.2 F0.4 B0.0 AR0 U0 B0.2 AR0 U0 B0.4 AR0 U0");
    // J = 2: the prologue's F2 goes too, and the iteration of B2 goes with its AR and U.
    CHECK(to_text(expand(stream, 2)) == "F0.0 B0.0 AR0 U0");
    CHECK(expand(stream, 0).empty());
  }

  TEST_CASE("a stream of forwards runs until the last one") {
    CHECK(to_text(expand({{}, parse_program("F1.0"), 1}, 3)) == "F1.0 F1.1 F1.2");
  }

  TEST_CASE("a stream with halves of a backward keeps an iteration as long as one half is left") {
    // The weight gradient runs one micro-batch behind: W-1 does not exist, so it starts in iteration 1.
    const Stream stream{parse_program("F0.0 I0.0"), parse_program("F0.1 I0.1 W0.0 U0"), 1};
    CHECK(to_text(expand(stream, 2)) == "F0.0 I0.0 F0.1 I0.1 W0.0 U0 W0.1 U0");
  }

  TEST_CASE("a stretch that ends within a round keeps F and B of it, without AR and U") {
    // Two replicas, five micro-batches: replica 1 has 1 and 3, so the third round of replica 0 has no partner.
    const auto stream = [](int q) {
      const std::string m = std::to_string(q);
      return Stream{{}, parse_program("F0." + m + " B0." + m + " AR0 U0"), 2};
    };
    CHECK(to_text(expand_stretch(stream(0), 5)) == "F0.0 B0.0 AR0 U0 F0.2 B0.2 AR0 U0 F0.4 B0.4");
    CHECK(to_text(expand_stretch(stream(1), 5)) == "F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0");
    CHECK(expand_stretch(stream(0), 4) == expand(stream(0), 4));
  }

  TEST_CASE("a stream that does not move on is refused") {
    CHECK(error_of([] {
            expand({{}, parse_program("F0.0 B0.0 U0"), 0}, 4);
          }) == "stream: period = 0; it must be at least 1");
  }
}

}  // namespace
}  // namespace pp::plan
