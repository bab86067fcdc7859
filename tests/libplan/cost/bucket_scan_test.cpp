#include "libplan/cost/stage_cost.h"

#include <vector>

#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

double hidden(const std::vector<LayerGradient>& layers, double all_reduce) {
  return hideable(layers, all_reduce);
}

TEST_SUITE("libplan/cost/bucket_scan") {
  // Backwards of 3, 2 and 4 in the order in which they run, sums of 1, 5 and 2: complete at 3, 5 and 9, and
  // max(3 + 8, 5 + 7, 9 + 2) = 12 is 3 beyond the backward: 8 - 3.
  TEST_CASE("buckets are complete in turn, and their sums follow each other") {
    CHECK(hidden({{4, 2 * kMiB}, {2, 5 * kMiB}, {3, 1 * kMiB}}, 8) == doctest::Approx(5));
  }

  // The second and third layer are a bucket of 6 of the 9 seconds, complete at 3 + 2, which ends at 11; the
  // first one's 3 follow: 14 is 5 beyond the backward.
  TEST_CASE("a bucket has 1 MiB at least, of whole layers; the last one what is left") {
    CHECK(hidden({{4, kMiB / 2}, {2, kMiB / 4}, {3, kMiB / 4 * 3}}, 9) == doctest::Approx(4));
    CHECK(hidden({{4, kMiB / 2}, {2, kMiB / 4}, {3, kMiB / 8}}, 8) == 0);  // one bucket, complete at the end
  }

  // The first bucket's half of 100 seconds may begin at 1, so that 3 are over at the end of a backward of 4.
  TEST_CASE("never more than the backward behind the first bucket, nor than the sums themselves") {
    CHECK(hidden({{3, kMiB}, {1, kMiB}}, 100) == doctest::Approx(3));
    CHECK(hidden({{3, 0}, {1, kMiB}}, 2) == doctest::Approx(2));
    CHECK(hidden({{3, 0}, {1, 0}}, 2) == 0);
  }
}

}  // namespace
}  // namespace pp::plan
