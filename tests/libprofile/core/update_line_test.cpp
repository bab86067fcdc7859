#include "libprofile/core/profile.h"

#include "tests/support/doctest.h"

namespace update_line_test {

using namespace pp;

namespace {

TimeStat seconds(double value) { return {Seconds(value), Seconds(value), Seconds(value), 1}; }

OptimizerProfile optimizer(std::vector<UpdatePoint> parts) {
  return {"sgd", 1, seconds(8), Bytes(4), std::move(parts)};
}

}  // namespace

TEST_SUITE("libprofile/core/update_line") {
  TEST_CASE("points on a line give the line, whatever a single one of them says") {
    const std::vector<UpdatePoint> points{
        {Bytes(1), seconds(5)}, {Bytes(2), seconds(7)}, {Bytes(4), seconds(11)}};
    CHECK(update_line(optimizer(points)) == UpdateLine{Seconds(3), 2});
    // Of the ten slopes of five points the six without the outlier are 2, the others above.
    std::vector<UpdatePoint> disturbed = points;
    disturbed.push_back({Bytes(3), seconds(9)});
    disturbed.push_back({Bytes(5), seconds(100)});
    CHECK(update_line(optimizer(disturbed)) == UpdateLine{Seconds(3), 2});
  }

  TEST_CASE("without parts the whole model's update is spread over its bytes") {
    CHECK(update_line(optimizer({})) == UpdateLine{Seconds(0), 2});
    CHECK(update_line({"sgd", 1, seconds(8), Bytes(0), {}}) == UpdateLine{});
  }

  TEST_CASE("parts of one size say nothing about a fixed cost") {
    CHECK(update_line(optimizer({{Bytes(2), seconds(6)}, {Bytes(2), seconds(6)}})) ==
          UpdateLine{Seconds(0), 3});
  }

  TEST_CASE("neither number is negative") {
    // Twice the bytes in four times the time: no fixed cost, the median of 2 and 4 from above.
    CHECK(update_line(optimizer({{Bytes(2), seconds(4)}, {Bytes(4), seconds(16)}})) ==
          UpdateLine{Seconds(0), 4});
    // More bytes in less time: nothing by the byte.
    CHECK(update_line(optimizer({{Bytes(2), seconds(4)}, {Bytes(4), seconds(3)}})) ==
          UpdateLine{Seconds(4), 0});
  }
}

}  // namespace update_line_test
