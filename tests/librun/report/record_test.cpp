#include "librun/report/record.h"

#include "tests/support/doctest.h"

namespace record_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/report/record") {
  TEST_CASE("the median of many times is kept in bounded memory") {
    TimeSample sample;
    for (int i = 0; i < 100000; ++i) sample.add(Seconds(i % 1000));
    CHECK(sample.count() == 100000);
    CHECK(sample.median().count() == doctest::Approx(500).epsilon(0.05));
  }

  TEST_CASE("the median of few times is exact") {
    CHECK(median({Seconds(3), Seconds(1), Seconds(2)}) == Seconds(2));
    CHECK(median({}) == Seconds(0));
  }
}

}  // namespace record_test
