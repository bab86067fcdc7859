#include "libplan/search/zero_bubble/auto_zero_bubble.h"

#include <functional>
#include <tuple>

#include "libplan/schedule/validate.h"
#include "libplan/search/zero_bubble/clock.h"
#include "libplan/simulate/lower_bound.h"
#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/search/zero_bubble/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/zero_bubble/auto_zero_bubble");

namespace pp::plan::auto_zero_bubble_test {
namespace {

using test::equal_pipeline;
using test::Random;
using test::random_pipeline;

constexpr double kRounding = 1 + 1e-9;

doctest::Approx approx(double value) { return doctest::Approx(value).epsilon(1e-9); }

struct Figures {
  double period = 0;
  double makespan = 0;
};

SimulationInput with(SimulationInput pipeline, ProgramSet programs) {
  pipeline.programs = std::move(programs);
  return pipeline;
}

bool respects(const SimulationInput& input, const ZeroBubbleRequest& request) {
  const std::vector<MemoryPeak> memory = simulate(input).memory;
  for (std::size_t w = 0; w < input.programs.workers.size(); ++w) {
    const double held = peak_in_flight(input.programs.workers[w], 1);
    if (!request.in_flight_limit.empty() && held > request.in_flight_limit[w]) return false;
    if (!request.memory_limit.empty() && memory[w].peak > request.memory_limit[w]) return false;
  }
  return true;
}

/// H1, H2 and split 1F1B, those within the limits; periods below the bound count as the bound.
std::vector<Figures> references(const ZeroBubbleRequest& request, Seconds period_bound) {
  const int workers = static_cast<int>(request.pipeline.stages.size());
  const int count = request.pipeline.programs.micro_batches;
  std::vector<Figures> result;
  for (const ProgramSet& set :
       {test::zb_h1(workers, count), test::zb_h2(workers, count), test::split_1f1b(workers, count)}) {
    const SimulationInput input = with(request.pipeline, set);
    if (!respects(input, request)) continue;
    result.push_back({std::max(chained_period(input), period_bound).count(), simulate(input).makespan.count()});
  }
  return result;
}

void check_ascending(const ProgramSet& set) {
  for (const Program& program : set.workers) {
    for (const OpKind kind : {OpKind::forward, OpKind::input_gradient, OpKind::weight_gradient}) {
      int next = 0;
      for (const Op& op : program) {
        if (op.kind == kind) REQUIRE(op.micro_batch == next++);
      }
      REQUIRE(next == set.micro_batches);
    }
  }
}

/// Everything the header promises about one result.
void check_promises(const ZeroBubbleRequest& request) {
  const ZeroBubbleResult result = search_zero_bubble(request);
  const SimulationInput input = with(request.pipeline, result.programs);
  validate(result.programs);
  check_ascending(result.programs);
  REQUIRE(respects(input, request));
  const double period = result.period.count();
  const double makespan = result.makespan.count();
  REQUIRE(makespan == approx(simulate(input).makespan.count()));
  REQUIRE(period == approx(std::max(chained_period(input), result.period_bound).count()));
  REQUIRE(makespan * kRounding >= result.makespan_bound.count());

  Figures least{1e300, 1e300};
  const std::vector<Figures> others = references(request, result.period_bound);
  for (const Figures& other : others) {
    least = {std::min(least.period, other.period), std::min(least.makespan, other.makespan)};
  }
  REQUIRE(period <= least.period * kRounding);
  for (const Figures& other : others) {
    if (period * kRounding >= other.period) REQUIRE(makespan <= other.makespan * kRounding);
    const bool reaches_both = other.period <= least.period && other.makespan <= least.makespan;
    if (reaches_both) REQUIRE(makespan <= least.makespan * kRounding);
  }
}

/// All orders of one worker within its room.
std::vector<WorkerOrder> all_orders(const Room& room) {
  const int count = static_cast<int>(room.size());
  std::vector<WorkerOrder> result;
  WorkerOrder order;
  const std::function<void(int, int, int)> extend = [&](int forwards, int inputs, int weights) {
    if (weights == count) return result.push_back(order);
    const auto append = [&](OpKind kind) {
      order.push_back(kind);
      extend(forwards + (kind == OpKind::forward), inputs + (kind == OpKind::input_gradient),
             weights + (kind == OpKind::weight_gradient));
      order.pop_back();
    };
    if (forwards < room[at(weights)]) append(OpKind::forward);
    if (inputs < forwards) append(OpKind::input_gradient);
    if (weights < inputs) append(OpKind::weight_gradient);
  };
  extend(0, 0, 0);
  return result;
}

/// The best of all orders by the documented rank: first those that reach both figures of `least`, then period,
/// then makespan.
Figures brute_force(const ZeroBubbleRequest& request, const ZeroBubbleResult& result, const Figures& least) {
  const Pipeline pipeline = make_pipeline(with(request.pipeline, result.programs));
  OrderClock clock(pipeline);
  std::vector<std::vector<WorkerOrder>> orders;
  for (const Room& room : make_rooms(request)) orders.push_back(all_orders(room));
  Order order(orders.size());
  std::tuple<bool, double, double> best{true, 1e300, 1e300};
  const std::function<void(std::size_t)> choose = [&](std::size_t worker) {
    if (worker < orders.size()) {
      for (const WorkerOrder& option : orders[worker]) {
        order[worker] = option;
        choose(worker + 1);
      }
      return;
    }
    const OrderTimes times = clock.time(order);
    const double period = std::max(times.period, result.period_bound.count());
    const bool misses = period > least.period * kRounding || times.makespan > least.makespan * kRounding;
    best = std::min(best, std::tuple(misses, period, times.makespan));
  };
  choose(0);
  return {std::get<1>(best), std::get<2>(best)};
}

}  // namespace

TEST_CASE("equal stages without limits: no bubble when chained, the shortest step, and proof of both") {
  for (int k = 1; k <= 8; ++k) {
    for (int m = 2 * k - 1; m <= 32; m += 5) {
      CAPTURE(k);
      CAPTURE(m);
      const ZeroBubbleResult result = search_zero_bubble(equal_pipeline(k, m));
      CHECK(result.period.count() == 3 * m);
      CHECK(result.makespan.count() == 3 * m + k - 1);
      CHECK(result.period_bound == result.period);
      CHECK(result.makespan_bound == result.makespan);
    }
  }
}

TEST_CASE("between the memory of ZB-H1 and of ZB-H2 every micro-batch more saves a forward of bubble") {
  // K = 4, M = 8, 24 of work. Worker 0 gets the first gradient 7 after its start and has L forwards to fill
  // that: 7 - L of bubble, none from L = 7 on. ZB-H1 needs 4 and takes 27, ZB-H2 needs 7 and takes 24.
  for (int limit = 4; limit <= 9; ++limit) {
    ZeroBubbleRequest request = equal_pipeline(4, 8);
    request.in_flight_limit.assign(4, limit);
    const ZeroBubbleResult result = search_zero_bubble(request);
    CHECK(result.period.count() == 24 + std::max(0, 7 - limit));
    CHECK(result.period_bound == result.period);
    CHECK(result.makespan.count() == 27);
  }
}

TEST_CASE("the worked example: latency and room for four of the five that ZB-H2 holds") {
  // Worker 0 waits until 7 for its first gradient (five operations and four transfers of 0.5) with four
  // forwards to run: 3 idle and 15 of work.
  ZeroBubbleRequest request = equal_pipeline(3, 5);
  request.in_flight_limit = {4, 4, 4};
  request.pipeline.links = {{Link{BytesPerSecond(0), Seconds(0.5)}}};
  const ZeroBubbleResult result = search_zero_bubble(request);
  CHECK(result.period.count() == 18);
  CHECK(result.makespan.count() == 18);
  CHECK(result.period_bound.count() == 18);
  CHECK(result.makespan_bound.count() == 18);
  CHECK(simulate(with(request.pipeline, test::zb_h1(3, 5))).makespan.count() == 21);
}

TEST_CASE("less memory than ZB-H1 needs still gives a schedule") {
  // One micro-batch at a time: F I W of both workers in a row, 5 s each: F0 F1 I1 I0 W0.
  ZeroBubbleRequest request = equal_pipeline(2, 3);
  request.in_flight_limit = {1, 1};
  const ZeroBubbleResult result = search_zero_bubble(request);
  CHECK(to_text(result.programs.workers[0]) == "F0.0 I0.0 W0.0 F0.1 I0.1 W0.1 F0.2 I0.2 W0.2 U0");
  CHECK(result.makespan.count() == 15);
  CHECK(result.period.count() == 15);
}

TEST_CASE("equal stages: never worse than ZB-H1, ZB-H2 and 1F1B, with and without latency") {
  for (int k = 1; k <= 8; ++k) {
    for (const int m : {1, 2, 3, 5, 8, 16, 32}) {
      for (const double latency : {0.0, 0.4}) {
        ZeroBubbleRequest request = equal_pipeline(k, m);
        request.evaluations = 200;  // the promises do not depend on the effort
        const auto count = at(k);
        request.pipeline.links = {{Link{BytesPerSecond(0), Seconds(latency)}}};
        for (const int limit : {0, k, k + k / 2}) {
          CAPTURE(k);
          CAPTURE(m);
          CAPTURE(limit);
          if (limit > 0) request.in_flight_limit.assign(count, limit);
          check_promises(request);
        }
      }
    }
  }
}

TEST_CASE("random stages and links: never worse than ZB-H1, ZB-H2 and 1F1B") {
  Random random(8);
  for (int round = 0; round < 250; ++round) {
    CAPTURE(round);
    const int k = random.integer(1, 8);
    ZeroBubbleRequest request = random_pipeline(random, k, random.integer(1, 20));
    request.evaluations = 300 * random.integer(0, 2);
    for (int s = 0; s < k && round % 2 == 0; ++s) request.in_flight_limit.push_back(random.integer(1, 2 * k));
    check_promises(request);
  }
}

TEST_CASE("bytes: unequal stages and micro-batches stay within the limits of their devices") {
  Random random(13);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const int k = random.integer(1, 5);
    ZeroBubbleRequest request = random_pipeline(random, k, random.integer(2, 12));
    request.evaluations = 300;
    for (int m = 0; m < request.pipeline.programs.micro_batches; ++m) {
      request.pipeline.micro_batch_scale.push_back(m < 2 ? 1 : 0.75);
    }
    for (StageCosts& costs : request.pipeline.stages) {
      costs.weights = costs.gradients = Bytes(random.integer(0, 500));
      costs.saved = Bytes(random.integer(1, 100));
      costs.input = Bytes(random.integer(0, 30));
      costs.workspace = Bytes(random.integer(0, 40));
      const std::int64_t one = (costs.saved + costs.input).value;
      const std::int64_t fixed = (costs.weights + costs.gradients + costs.workspace).value;
      request.memory_limit.push_back(Bytes(fixed + one * random.integer(2, 9) / 2));
    }
    check_promises(request);
  }
}

TEST_CASE("skips delay both directions and are respected") {
  Random random(4);
  for (int round = 0; round < 20; ++round) {
    ZeroBubbleRequest request = random_pipeline(random, 4, 6);
    request.evaluations = 300;
    request.pipeline.programs.skips = {{StageId{0}, StageId{3}}};
    request.pipeline.edges.push_back({StageId{0}, StageId{3}, Bytes(400), Bytes(400)});
    const ZeroBubbleResult result = search_zero_bubble(request);
    validate(result.programs);
    for (const ProgramSet& set : {test::zb_h1(4, 6), test::zb_h2(4, 6)}) {
      SimulationInput input = with(request.pipeline, set);
      input.programs.skips = request.pipeline.programs.skips;
      REQUIRE(result.period <= std::max(chained_period(input), result.period_bound) * kRounding);
    }
  }
}

TEST_CASE("small pipelines: within 3 % of the best of all orders, and nearly always equal to it") {
  Random random(17);
  int optimal = 0;
  int total = 0;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const bool three = round % 2 == 0;
    ZeroBubbleRequest request = random_pipeline(random, three ? 3 : 2, three ? 3 : 4);
    for (LinkLevel& level : request.pipeline.links)
      level.link.bandwidth = BytesPerSecond(0);  // then the clock is exact
    if (round % 3 > 0) request.in_flight_limit.assign(three ? 3 : 2, 1 + round % 3);
    const ZeroBubbleResult result = search_zero_bubble(request);
    Figures least{1e300, 1e300};
    for (const Figures& other : references(request, result.period_bound)) {
      least = {std::min(least.period, other.period), std::min(least.makespan, other.makespan)};
    }
    const Figures best = brute_force(request, result, least);
    REQUIRE(best.period * kRounding >= result.period_bound.count());
    REQUIRE(best.makespan * kRounding >= result.makespan_bound.count());
    REQUIRE(result.period.count() <= 1.03 * best.period);
    ++total;
    optimal += result.period.count() <= best.period * kRounding &&
               result.makespan.count() <= best.makespan * kRounding;
  }
  MESSAGE("optimal in ", optimal, " of ", total);
  CHECK(optimal >= total - 2);
}

TEST_CASE("the same request gives the same programs") {
  Random random(23);
  const ZeroBubbleRequest request = random_pipeline(random, 5, 9);
  const ZeroBubbleResult first = search_zero_bubble(request);
  const ZeroBubbleResult second = search_zero_bubble(request);
  CHECK(first.programs.workers == second.programs.workers);
  CHECK(first.how == second.how);
}

TEST_CASE("stages without cost have a schedule, too") {
  ZeroBubbleRequest request = equal_pipeline(3, 4);
  for (StageCosts& costs : request.pipeline.stages) costs = {};
  const ZeroBubbleResult result = search_zero_bubble(request);
  validate(result.programs);
  CHECK(result.makespan.count() == 0);
}

}  // namespace pp::plan::auto_zero_bubble_test

TEST_SUITE_END();
