#include "libprofile/measure/findings.h"

#include <vector>

#include "tests/support/doctest.h"

namespace pp::profile {

TEST_SUITE("libprofile/measure/reference_drift") {
  TEST_CASE("the change is that of the last quarter against the first, by their medians") {
    CHECK_FALSE(reference_change(std::vector<double>(7, 1.0)).has_value());
    // Quarters of two: 1 and 2, and 3 and 3.
    CHECK(*reference_change(std::vector<double>{1, 2, 9, 9, 9, 9, 3, 3}) == doctest::Approx(1.0));
    CHECK(*reference_change(std::vector<double>(8, 2.0)) == 0.0);
    CHECK_FALSE(reference_change(std::vector<double>(8, 0.0)).has_value());
  }

  TEST_CASE("a change of more than a tenth is a finding, in either direction") {
    const std::vector<double> slower{1, 1, 1, 1, 1, 1, 1.25, 1.25}, faster{2, 2, 2, 2, 2, 2, 1, 1};
    CHECK(*reference_finding(slower) ==
          "a fixed piece of work took 25 % longer at the end of the measurement than at its beginning: "
          "the cores' clock changed, or other programs that share cores, caches or memory came or went; let "
          "the machine cool, end other programs "
          "and profile again");
    CHECK(reference_finding(faster)->starts_with("a fixed piece of work took 50 % less at the end"));
    CHECK_FALSE(reference_finding(std::vector<double>{1, 1, 1, 1, 1, 1, 1.09, 1.09}).has_value());
  }
}

}  // namespace pp::profile
