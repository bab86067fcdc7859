#include "librun/report/build.h"

#include "tests/support/doctest.h"

namespace frames_test {

using namespace pp;
using namespace pp::run;

namespace {

OpRecord forward(int stage, std::int64_t frame, double start, double end) {
  const plan::Op op{plan::OpKind::forward, StageId{stage}, static_cast<int>(frame)};
  return {{WorkerId{stage}, op, Seconds(start), Seconds(end)}, frame, {}, {}};
}

}  // namespace

TEST_SUITE("librun/report/frames") {
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

}  // namespace frames_test
