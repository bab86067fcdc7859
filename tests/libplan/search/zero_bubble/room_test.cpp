#include "libplan/search/zero_bubble/clock.h"

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/search/zero_bubble/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/zero_bubble/room");

namespace pp::plan {
namespace {

using test::equal_pipeline;
using test::error_of;

/// 100 + 100 + 200 + 8 fixed; 13 held per micro-batch, 5 of workspace.
ZeroBubbleRequest sized_pipeline(int micro_batches) {
  ZeroBubbleRequest request = equal_pipeline(1, micro_batches);
  StageCosts& costs = request.pipeline.stages[0];
  costs.weights = costs.gradients = Bytes(100);
  costs.optimizer = Bytes(200);
  costs.boundary = Bytes(8);
  costs.saved = Bytes(10);
  costs.input = Bytes(3);
  costs.workspace = Bytes(5);
  return request;
}

}  // namespace

TEST_CASE("without limits all forwards may run") {
  CHECK(make_rooms(equal_pipeline(2, 3)) == std::vector<Room>{{3, 3, 3}, {3, 3, 3}});
}

TEST_CASE("an in-flight limit moves on with every W") {
  ZeroBubbleRequest request = equal_pipeline(2, 4);
  request.in_flight_limit = {2, 9};
  CHECK(make_rooms(request) == std::vector<Room>{{2, 3, 4, 4}, {4, 4, 4, 4}});
}

TEST_CASE("bytes become micro-batches") {
  ZeroBubbleRequest request = sized_pipeline(4);
  request.memory_limit = {Bytes(408 + 5 + 2 * 13)};
  CHECK(make_rooms(request) == std::vector<Room>{{2, 3, 4, 4}});
  request.memory_limit = {Bytes(408 + 5 + 3 * 13 - 1)};
  CHECK(make_rooms(request) == std::vector<Room>{{2, 3, 4, 4}});
  request.in_flight_limit = {1};  // both limits hold
  CHECK(make_rooms(request) == std::vector<Room>{{1, 2, 3, 4}});
}

TEST_CASE("small micro-batches leave room for more") {
  ZeroBubbleRequest request = sized_pipeline(4);
  request.pipeline.micro_batch_scale = {1, 1, 0.5, 0.5};
  // 33 bytes beside the 413: 13 + 13 (+ 7 = 5 + 2 rounded), then 13 + 7 + 7.
  request.memory_limit = {Bytes(413 + 33)};
  CHECK(make_rooms(request) == std::vector<Room>{{3, 4, 4, 4}});
}

TEST_CASE("a limit below one micro-batch is refused") {
  ZeroBubbleRequest request = equal_pipeline(2, 4);
  request.in_flight_limit = {3, 0};
  CHECK(error_of([&] { make_rooms(request); }) ==
        "auto-zb: worker 1 may hold 0 micro-batches; allow at least 1");
  request = sized_pipeline(4);
  request.memory_limit = {Bytes(425)};
  CHECK(
      error_of([&] { make_rooms(request); }) ==
      "auto-zb: worker 0 needs 426 bytes to hold micro-batch 0, its limit is 425; raise the limit or make the "
      "micro-batches smaller");
}

TEST_CASE("replicas, other placements and asynchronous sets are refused") {
  ZeroBubbleRequest request = equal_pipeline(2, 4);
  request.pipeline.programs.stage_workers = {{WorkerId{0}}, {WorkerId{1}, WorkerId{2}}};
  CHECK(error_of([&] { make_rooms(request); }) ==
        "auto-zb: stage 1 has 2 replicas; give each stage one worker, or use 1f1b");
  request.pipeline.programs.stage_workers = {{WorkerId{1}}, {WorkerId{0}}};
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: stage 0 is on worker 1; place stage s on worker s");
  request.pipeline.programs.stage_workers = {};
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: no stages; give at least one");
  request = equal_pipeline(2, 0);
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: micro_batches = 0; give at least 1");
  request = equal_pipeline(2, 4);
  request.pipeline.programs.synchronous = false;
  CHECK(error_of([&] { make_rooms(request); }) ==
        "auto-zb: it orders one synchronous step; choose an asynchronous schedule by name");
}

TEST_CASE("costs and limits come one per worker, scales one per micro-batch") {
  ZeroBubbleRequest request = equal_pipeline(2, 4);
  request.in_flight_limit = {3};
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: 1 in-flight limits, expected 2");
  request = equal_pipeline(2, 4);
  request.memory_limit = {Bytes(1), Bytes(1), Bytes(1)};
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: 3 memory limits, expected 2");
  request = equal_pipeline(2, 4);
  request.pipeline.stages.pop_back();
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: 1 stage costs, expected 2");
  request = equal_pipeline(2, 4);
  request.pipeline.micro_batch_scale = {1, 1};
  CHECK(error_of([&] { make_rooms(request); }) == "auto-zb: 2 micro-batch scales, expected 4");
}

}  // namespace pp::plan

TEST_SUITE_END();
