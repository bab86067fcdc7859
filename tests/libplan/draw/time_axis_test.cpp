#include "libplan/draw/timeline_rows.h"

#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

std::string labels(Seconds length, int most) {
  const TimeAxis axis = time_axis(length, most);
  std::string text;
  for (int tick = 0; tick <= axis.last; ++tick) text += axis.label(tick) + ' ';
  return text + std::string(axis.unit);
}

TEST_SUITE("libplan/draw/time axis") {
  TEST_CASE("steps are 1, 2 or 5 times a power of ten, the smallest that leaves few enough ticks") {
    CHECK(labels(Seconds(0.033), 5) == "0 10 20 30 ms");
    CHECK(labels(Seconds(0.033), 4) == "0 10 20 30 ms");
    CHECK(labels(Seconds(0.033), 3) == "0 20 ms");
    CHECK(labels(Seconds(0.033), 10) == "0 5 10 15 20 25 30 ms");
    CHECK(labels(Seconds(0.0015), 4) == "0.0 0.5 1.0 1.5 ms");
  }

  TEST_CASE("a length of whole steps ends with a tick") {
    CHECK(labels(Seconds(0.1 + 0.2), 4) == "0 100 200 300 ms");
    CHECK(labels(Seconds(0.6), 4) == "0 200 400 600 ms");
  }

  TEST_CASE("the unit fits the length") {
    CHECK(labels(Seconds(20), 3) == "0 10 20 s");
    CHECK(labels(Seconds(5), 3) == "0 2000 4000 ms");
    CHECK(labels(Seconds(20e-6), 3) == "0 10 20 us");
    CHECK(labels(Seconds(20e-9), 3) == "0 10 20 ns");
    CHECK(labels(Seconds(86400), 3) == "0 50000 s");
  }

  TEST_CASE("no length is one tick; fewer than three asked for are three at most") {
    CHECK(labels(Seconds(0), 5) == "0 ns");
    CHECK(labels(Seconds(0.033), 1) == "0 20 ms");
    CHECK(labels(Seconds(0.02), 1) == "0 10 20 ms");
  }

  TEST_CASE("there are never more ticks than asked for, and always two") {
    for (int most = 3; most < 20; ++most) {
      for (double length = 1e-9; length < 1e4; length *= 1.37) {
        const TimeAxis axis = time_axis(Seconds(length), most);
        CAPTURE(length);
        CAPTURE(most);
        CHECK(axis.last < most);
        CHECK(axis.last >= 1);
        CHECK(axis.time(axis.last).count() <= length * (1 + 1e-8));
      }
    }
  }
}

}  // namespace
}  // namespace pp::plan
