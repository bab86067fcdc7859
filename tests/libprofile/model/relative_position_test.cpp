#include "libprofile/model/ops/attention.h"

#include <ATen/ops/randn.h>

#include "tests/support/torch_test.h"

namespace relative_position_test {

using namespace pp::model::ops;

TEST_SUITE("libprofile/model/relative_position") {
  TEST_CASE("to both sides: half of each side's buckets for near positions, the rest for doubling distances") {
    const auto bucket = [](std::int64_t distance) {
      return position_bucket(distance, 32, 128, Sight::both_sides);
    };
    CHECK(bucket(0) == 0);
    CHECK(bucket(-7) == 7);
    CHECK(bucket(7) == 16 + 7);
    // Eight buckets for 8 to 128, four doublings: 2 per doubling.
    CHECK(bucket(-8) == 8);
    CHECK(bucket(-16) == 10);
    CHECK(bucket(32) == 16 + 12);
    CHECK(bucket(-64) == 14);
    CHECK(bucket(-127) == 15);
    CHECK(bucket(128) == 16 + 15);
    CHECK(bucket(-100000) == 15);
  }

  TEST_CASE("backward: twice as many buckets, later keys count as the position itself") {
    const auto bucket = [](std::int64_t distance) {
      return position_bucket(distance, 32, 128, Sight::backward);
    };
    CHECK(bucket(5) == 0);
    CHECK(bucket(-15) == 15);
    // Sixteen buckets for 16 to 128, three doublings: 16/3 per doubling.
    CHECK(bucket(-16) == 16);
    CHECK(bucket(-32) == 21);
    CHECK(bucket(-64) == 26);
    CHECK(bucket(-128) == 31);
  }

  TEST_CASE("the bias of a pair of positions is the table's entry for its bucket, per sample and head") {
    const at::Tensor table = at::randn({2, 8, 3}, at::kDouble);
    const at::Tensor bias = position_bias(table, 5, 16, Sight::both_sides);
    REQUIRE(bias.sizes() == at::IntArrayRef({2, 3, 5, 5}));
    for (std::int64_t query = 0; query < 5; ++query) {
      for (std::int64_t key = 0; key < 5; ++key) {
        const std::int64_t bucket = position_bucket(key - query, 8, 16, Sight::both_sides);
        CHECK(bias.select(2, query).select(2, key).equal(table.select(1, bucket)));
      }
    }
  }
}

}  // namespace relative_position_test
