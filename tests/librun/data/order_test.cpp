#include "librun/data/order.h"

#include <algorithm>
#include <numeric>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace order_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/data/order") {
  TEST_CASE("an epoch's order is a permutation that depends on seed and epoch only") {
    const auto order = epoch_order(100, 7, 0, true);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::int64_t> ascending(100);
    std::iota(ascending.begin(), ascending.end(), 0);
    CHECK(sorted == ascending);
    CHECK(order != ascending);
    CHECK(order == epoch_order(100, 7, 0, true));
    CHECK(order != epoch_order(100, 7, 1, true));
    CHECK(order != epoch_order(100, 8, 0, true));
    CHECK(epoch_order(100, 7, 3, false) == ascending);
  }

  TEST_CASE("every sample is equally likely in the first place") {
    // 3000 draws of 3: 1000 each; the standard deviation of a count is sqrt(3000 * 1/3 * 2/3) = 26, 130 is five
    // of them.
    std::vector<int> first(3, 0);
    for (int epoch = 0; epoch < 3000; ++epoch)
      ++first[static_cast<std::size_t>(epoch_order(3, 1, epoch, true)[0])];
    for (const int count : first) CHECK(std::abs(count - 1000) < 130);
  }

  TEST_CASE("a last mini-batch that can be cut into micro-batches is kept") {
    // 22 = 8 + 8 + 6, and 6 >= 4.
    const EpochShape shape =
        epoch_shape({.samples = 22, .mini_batch = 8, .micro_batches = 4, .source = "data"});
    CHECK(shape.count == 3);
    CHECK(shape.size(0) == 8);
    CHECK(shape.size(2) == 6);
    CHECK(shape.first(2) == 16);
  }

  TEST_CASE("steps of accumulated mini-batches: the last one takes what is left") {
    // Mini-batches of 8, 8, 8, 8 and 6 samples, two a step; of 8 in 4: 2,2,2,2, of 6 in 4: 2,2,1,1.
    EpochShape shape = epoch_shape({.samples = 38, .mini_batch = 8, .micro_batches = 4, .source = "data"});
    shape.accumulate = 2;
    CHECK(shape.steps() == 3);
    CHECK(shape.begin(2) == 4);
    CHECK(shape.begin(3) == 5);
    CHECK(shape.step_size(1) == 16);
    CHECK(shape.step_size(2) == 6);
    CHECK(shape.step_sizes(1) == std::vector<int>(8, 2));
    CHECK(shape.step_sizes(2) == std::vector<int>{2, 2, 1, 1});
    // A last mini-batch that is dropped belongs to no step.
    shape =
        epoch_shape({.samples = 19, .mini_batch = 8, .micro_batches = 4, .drop_last = true, .source = "data"});
    shape.accumulate = 3;
    CHECK(shape.steps() == 1);
    CHECK(shape.step_size(0) == 16);
  }

  TEST_CASE("a last mini-batch with fewer samples than micro-batches is refused, or dropped") {
    EpochRequest request{.samples = 19, .mini_batch = 8, .micro_batches = 4, .source = "data"};
    CHECK_THROWS_WITH_AS(
        epoch_shape(request),
        "data: the last mini-batch has 3 samples, fewer than micro_batches = 4; leave it out with --drop-last",
        Error);
    request.drop_last = true;
    CHECK(epoch_shape(request).count == 2);
  }

  TEST_CASE("a mini-batch larger than the data set is refused") {
    CHECK_THROWS_WITH_AS(
        epoch_shape({.samples = 5, .mini_batch = 8, .micro_batches = 1, .source = "digits"}),
        "digits: mini_batch = 8 exceeds the data set of 5 samples; plan with a smaller mini-batch or "
        "give more data",
        Error);
  }

  TEST_CASE("a stream's mini-batches must come in whole rounds of the replicas") {
    EpochRequest request{.samples = 10,
                         .mini_batch = 1,
                         .micro_batches = 1,
                         .round = 4,
                         .round_stage = 0,
                         .schedule = "pipedream",
                         .source = "data"};
    CHECK_THROWS_WITH_AS(
        epoch_shape(request),
        "schedule pipedream: 10 mini-batches are not a multiple of the 4 replicas of stage 0; use 8 or "
        "12, or --drop-last",
        Error);
    request.drop_last = true;
    CHECK(epoch_shape(request).count == 8);
  }
}

}  // namespace order_test
