#include "libprofile/device/reference_kernel.h"

#include "tests/libprofile/measure/fakes.h"

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/device/reference_kernel") {
  TEST_CASE("one run is timed between two marks") {
    const test::CountingClock clock;
    ClockTimer timer(clock);
    int runs = 0;
    CHECK(time_reference(timer, [&] { ++runs; }) == doctest::Approx(1e-3));
    CHECK(runs == 1);
    run_reference();
    CHECK(timer.take().empty());
  }
}

}  // namespace pp::profile
