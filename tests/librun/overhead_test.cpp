#include "librun/overhead.h"

#include "libprofile/device/process.h"
#include "tests/support/torch_test.h"

namespace overhead_test {

using namespace pp;

TEST_SUITE("librun/overhead") {
  TEST_CASE("both kinds of operations are measured, on one device and on two, and none is negative") {
    profile::prepare_process();
    for (const int count : {1, 2}) {
      CAPTURE(count);
      const OperationOverhead overhead = run::measure_overhead({.count = count});
      for (const TimeStat& time : {overhead.forward, overhead.backward}) {
        // 32 operations of a kind in each of the last 4 steps at least: 31 from one to the next.
        CHECK(time.samples >= 4 * 31);
        CHECK(time.low >= Seconds(0));
        CHECK(time.low <= time.median);
        CHECK(time.median <= time.high);
      }
    }
  }
}

}  // namespace overhead_test
