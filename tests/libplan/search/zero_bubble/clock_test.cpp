#include "libplan/search/zero_bubble/clock.h"

#include <cmath>

#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/search/zero_bubble/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/zero_bubble/clock");

namespace pp::plan::clock_test {
namespace {

using test::Random;

doctest::Approx approx(double value) { return doctest::Approx(value).epsilon(1e-12); }

SimulationInput with(SimulationInput pipeline, ProgramSet programs) {
  pipeline.programs = std::move(programs);
  return pipeline;
}

/// Any order of one worker, valid but perhaps a deadlock with its neighbours.
WorkerOrder random_order(Random& random, int micro_batches) {
  const Room room(at(micro_batches), micro_batches);
  WorkerOrder order = apply({random.integer(1, 4), random.integer(0, 3)}, room);
  for (int exchange = 0; exchange < 6; ++exchange) {
    const int p = random.integer(0, 3 * micro_batches - 2);
    const auto at = order.begin() + p;
    std::iter_swap(at, at + 1);
    if (!is_valid(order, room)) std::iter_swap(at, at + 1);
  }
  return order;
}

}  // namespace

TEST_CASE("the clock agrees with the simulator, deadlocks included") {
  Random random(3);
  int finished = 0;
  int deadlocks = 0;
  for (int round = 0; round < 600; ++round) {
    const int workers = random.integer(1, 4);
    const int count = random.integer(1, 6);
    SimulationInput input = test::random_pipeline(random, workers, count).pipeline;
    for (LinkLevel& level : input.links) level.link.bandwidth = BytesPerSecond(0);  // no ports to wait for
    if (workers > 2) input.programs.skips = {{StageId{0}, StageId{2}}};
    for (int m = 0; m < count; ++m) input.micro_batch_scale.push_back(random.integer(1, 3) / 2.0);
    Order order;
    for (int s = 0; s < workers; ++s) order.push_back(random_order(random, count));
    input = with(input, to_programs(order, input.programs));
    const Pipeline pipeline = make_pipeline(input);
    const OrderTimes times = OrderClock(pipeline).time(order);
    CAPTURE(round);
    if (std::isinf(times.makespan)) {
      ++deadlocks;
      REQUIRE(test::error_of([&] { simulate(input); }).starts_with("plan: deadlock"));
      continue;
    }
    ++finished;
    REQUIRE(times.makespan == approx(simulate(input).makespan.count()));
    REQUIRE(times.period == approx(chained_period(input).count()));
  }
  CHECK(finished > 100);
  CHECK(deadlocks > 20);
}

TEST_CASE("the critical path is the chain of operations that ends last") {
  // Two workers, one micro-batch, unit times: F0 F1 I1 I0 W0 end at 5; W1 ends at 4 beside it.
  SimulationInput input = test::equal_pipeline(2, 1).pipeline;
  const Order order(2, WorkerOrder{OpKind::forward, OpKind::input_gradient, OpKind::weight_gradient});
  const Pipeline pipeline = make_pipeline(with(input, to_programs(order, input.programs)));
  OrderClock clock(pipeline);
  const OrderTimes times = clock.time(order);
  CHECK(times.makespan == 5);
  // The next step starts on worker 0 at 5.
  CHECK(times.period == 5);
  CHECK(times.ends == 15 + 14);
  std::string path;
  for (const Place& place : clock.critical_path(1)) {
    path += std::to_string(place.worker) + "/" + std::to_string(place.position) + " ";
  }
  CHECK(path == "0/2 0/1 1/1 1/0 0/0 ");
  CHECK(clock.critical_path(3).size() == 15);
}

TEST_CASE("bounds of ZB-H1 and ZB-H2 with their own peak as room are their figures") {
  for (int k = 1; k <= 8; ++k) {
    for (int m = 2 * k - 1; m <= 24; m += 3) {
      CAPTURE(k);
      CAPTURE(m);
      for (const bool wide : {false, true}) {
        ZeroBubbleRequest request = test::equal_pipeline(k, m);
        const int peak = wide ? 2 * k - 1 : k;
        request.in_flight_limit.assign(at(k), peak);
        const SimulationInput input = with(request.pipeline, wide ? test::zb_h2(k, m) : test::zb_h1(k, m));
        const OrderBounds bounds = order_bounds(make_pipeline(input), make_rooms(request));
        // Published: makespan 3M + K - 1; chained, H2 has no bubble and H1 repeats its makespan.
        CHECK(bounds.makespan == 3 * m + k - 1);
        CHECK(bounds.period == (wide ? 3 * m : 3 * m + k - 1));
        CHECK(chained_period(input).count() == bounds.period);
      }
    }
  }
}

TEST_CASE("one micro-batch at a time: the round trips add up") {
  // K = 2, latency 0.5: F0 1, transfer 0.5, F1 1, I1 1, transfer 0.5, I0 1, W0 1 = 6 per micro-batch on worker
  // 0.
  ZeroBubbleRequest request = test::equal_pipeline(2, 3);
  request.in_flight_limit = {1, 1};
  request.pipeline.links = {{Link{BytesPerSecond(0), Seconds(0.5)}}};
  const SimulationInput input = with(request.pipeline, test::split_1f1b(2, 3));
  const OrderBounds bounds = order_bounds(make_pipeline(input), make_rooms(request));
  CHECK(round_trips(make_pipeline(input)) == std::vector<std::vector<double>>{{3, 3, 3}, {0, 0, 0}});
  CHECK(bounds.period == 18);
  CHECK(bounds.makespan == 18);
}

}  // namespace pp::plan::clock_test

TEST_SUITE_END();
