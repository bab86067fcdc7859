#include "libplan/answer/make_plan.h"
#include "libplan/report/compare_strategies.h"

#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/strategy");

namespace pp::plan {
namespace {

/// Five layers of 6, 5, 4, 3, 2 ms forward and backward together, sizes 1 to 4, cuts of 1 kB, some weights.
Profile five_layers() {
  return test::make_profile({{{2, 4, 1'000, 1'000, 10},
                              {2, 3, 1'000, 1'000, 10},
                              {2, 2, 1'000, 1'000, 10},
                              {1, 2, 1'000, 1'000, 10},
                              {1, 1, 50'000, 1'000, 10}},
                             {},
                             {1, 2, 4}});
}

PlanRequest request() {
  PlanRequest request;
  request.mini_batch = 8;
  return request;
}

PlanRequest narrow(Strategy strategy, const PlanRequest& from = request(), int devices = 3) {
  return narrowed(five_layers(), test::make_cluster(devices), from, strategy);
}

}  // namespace

TEST_CASE("balanced strategies cut in file order, one device each") {
  const std::vector<int> ones{1, 1, 1};
  const PlanRequest time = narrow(Strategy::balance_by_time);
  CHECK(time.cuts == std::vector<int>{1, 2});  // 6 | 5 | 4+3+2 = 9, as is 6 | 5+4 | 3+2; the earlier cut wins
  CHECK(time.replicas == ones);
  // Size = 1,000 + 2 * weights: 3,000 four times, then 101,000, which stands alone.
  CHECK(narrow(Strategy::balance_by_size).cuts.back() == 4);
  // Without FLOPs the forward times: 2, 2, 2, 1, 1 of 8: shares 1/4, 1/2, 3/4, 7/8, 1 -> 0, 1, 2, 2, 2.
  CHECK(narrow(Strategy::lingvo).cuts == std::vector<int>{1, 2});
  PlanRequest two = request();
  two.stages = 2;
  CHECK(narrow(Strategy::balance_by_time, two).cuts == std::vector<int>{2});  // 11 | 9
}

TEST_CASE("data parallelism takes as many devices as there can be micro-batches, straight has no replicas") {
  CHECK(narrow(Strategy::data_parallel).replicas == std::vector<int>{3});
  PlanRequest two = request();
  two.micro_batches = 2;
  CHECK(narrow(Strategy::data_parallel, two).replicas == std::vector<int>{2});
  const auto straight = make_plan(five_layers(), test::make_cluster(3), narrow(Strategy::straight));
  for (const Stage& stage : std::get<Plan>(straight).stages) CHECK(stage.workers.size() == 1);
}

TEST_CASE("a peer's stages come in its own layer order") {
  const PlanRequest peer = narrow(Strategy::pipedream_code);
  CHECK(peer.layer_order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(peer.cuts.size() + 1 == peer.replicas.size());
  CHECK(std::get<Plan>(make_plan(five_layers(), test::make_cluster(3), peer)).stages.size() ==
        peer.replicas.size());
}

TEST_CASE("strategies without an answer say why") {
  CHECK_THROWS_WITH(narrow(Strategy::manual), "strategy manual needs the cuts; add --cuts K,K");
  PlanRequest many = request();
  many.stages = 6;
  CHECK_THROWS_WITH(narrow(Strategy::balance_by_time, many), "stages = 6 exceeds the number of layers, 5");
  // Forward 0, 9, 1 into three: nothing lands in the second.
  const Profile gap = test::make_profile({{{0, 1}, {9, 1}, {1, 1}}, {}, {1}});
  CHECK_THROWS_WITH(narrowed(gap, test::make_cluster(3), request(), Strategy::lingvo),
                    "lingvo: partition 1 of 3 has no layers; use balance-by-time, or fewer stages");
}

TEST_CASE("a strategy that cannot keep to the stages asked for is refused, not followed") {
  PlanRequest two = request();
  two.stages = 2;
  CHECK_THROWS_WITH(
      narrow(Strategy::data_parallel, two),
      "strategy data-parallel does not keep to the stages, cuts or replicas asked for; leave them "
      "out, or choose another strategy");
  PlanRequest uneven = request();
  uneven.replicas = {2, 1};
  CHECK_THROWS_AS(narrow(Strategy::balance_by_time, uneven), Error);
}

TEST_CASE("ours is never slower than a baseline under the same simulator, and every strategy has a row") {
  const auto rows = compare_strategies(five_layers(), test::make_cluster(3), request());
  REQUIRE(rows.size() == EnumNames<Strategy>::table.size() - 1);  // not manual
  const Seconds ours = std::get<Plan>(rows.front().result).predicted.step;
  for (const Comparison& row : rows) {
    CAPTURE(std::string(name_of(row.strategy)));
    if (const Plan* plan = std::get_if<Plan>(&row.result)) {
      CHECK(plan->predicted.step >= ours);
    } else {
      CHECK_FALSE(std::get<std::string>(row.result).empty());
    }
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
