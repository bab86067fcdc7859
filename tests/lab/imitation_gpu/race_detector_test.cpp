#include "tests/lab/imitation_gpu/race_detector.h"

#include "tests/support/doctest.h"

namespace race_detector_test {

using namespace pp::test::gpu;

namespace {

constexpr Stream kOne = 1, kTwo = 2, kThree = 3;
const std::vector<Region> kNothing, kHere{{1000, 100}}, kBeside{{1100, 100}}, kMiddle{{1040, 20}},
    kEnd{{1080, 20}};

}  // namespace

TEST_SUITE("imitation_gpu/race_detector") {
  TEST_CASE("accesses of one stream have an order, of two streams none") {
    RaceDetector detector;
    detector.launch(kOne, "relu", kNothing, kHere);
    detector.launch(kOne, "add", kHere, kNothing);
    CHECK(detector.races().empty());
    detector.launch(kTwo, "add", kHere, kNothing);
    CHECK(detector.races() == std::set<std::string>{"relu writes what add reads"});
    detector.launch(kTwo, "fill", kNothing, kHere);  // kOne's add reads what it overwrites
    CHECK(detector.races().contains("add reads what fill writes"));
    CHECK(detector.accesses() == 4);
  }

  TEST_CASE("two reads need no order, nor does what lies side by side") {
    RaceDetector detector;
    detector.launch(kOne, "add", kHere, kNothing);
    detector.launch(kTwo, "mul", kHere, kBeside);
    detector.launch(kThree, "relu", kNothing, std::vector<Region>{{900, 100}});
    CHECK(detector.races().empty());
  }

  TEST_CASE("an event orders what was recorded before it and nothing after") {
    RaceDetector detector;
    detector.launch(kOne, "relu", kNothing, kHere);
    const VectorClock event = detector.record(kOne);
    detector.launch(kOne, "tanh", kNothing, kBeside);
    detector.stream_waits(kTwo, event);
    detector.launch(kTwo, "add", kHere, kNothing);
    CHECK(detector.races().empty());
    detector.launch(kTwo, "mul", kBeside, kNothing);
    CHECK(detector.races() == std::set<std::string>{"tanh writes what mul reads"});
  }

  TEST_CASE("order passes on from stream to stream, and through the host") {
    RaceDetector detector;
    detector.launch(kOne, "relu", kNothing, kHere);
    detector.stream_waits(kTwo, detector.record(kOne));
    detector.launch(kTwo, "add", kHere, kNothing);
    detector.host_waits_for(kTwo);
    detector.launch(kThree, "fill", kNothing, kHere);
    CHECK(detector.races().empty());
    detector.host_waits(detector.record(kThree));
    detector.launch(kOne, "mul", kHere, kNothing);
    CHECK(detector.races().empty());
  }

  TEST_CASE("a write inside a region leaves both ends as they were") {
    RaceDetector detector;
    detector.launch(kOne, "relu", kNothing, kHere);
    detector.host_waits_for(kOne);
    detector.launch(kTwo, "fill", kNothing, kMiddle);
    detector.launch(kThree, "add", std::vector<Region>{{1000, 40}}, kNothing);
    detector.launch(kThree, "mul", kEnd, kNothing);
    CHECK(detector.races().empty());
    detector.launch(kThree, "tanh", kHere, kNothing);
    CHECK(detector.races() == std::set<std::string>{"fill writes what tanh reads"});
  }

  TEST_CASE("freed memory is forgotten") {
    RaceDetector detector;
    detector.launch(kOne, "relu", kNothing, kHere);
    detector.forget({1000, 100});
    detector.launch(kTwo, "add", kHere, kNothing);
    CHECK(detector.races().empty());
  }
}

}  // namespace race_detector_test
