#include "libplan/search/zero_bubble/pipeline.h"

#include "libplan/search/zero_bubble/greedy.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/zero_bubble/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/zero_bubble/order");

namespace pp::plan {
namespace {

constexpr OpKind F = OpKind::forward;
constexpr OpKind I = OpKind::input_gradient;
constexpr OpKind W = OpKind::weight_gradient;

std::string text_of(const WorkerOrder& order) {
  return test::short_text(
      to_programs({order}, test::straight_placement(1, static_cast<int>(order.size()) / 3)).workers.front());
}

}  // namespace

TEST_CASE("an order needs F before I before W, and room") {
  CHECK(is_valid({F, F, I, W, I, W}, {2, 2}));
  CHECK_FALSE(is_valid({F, F, I, W, I, W}, {1, 2}));  // two are held, one may be
  CHECK(is_valid({F, I, W, F, I, W}, {1, 2}));
  CHECK_FALSE(is_valid({F, I, F, W, I, W}, {1, 2}));  // I alone frees nothing
  CHECK_FALSE(is_valid({I, F, W, F, I, W}, {2, 2}));
  CHECK_FALSE(is_valid({F, W, I, F, I, W}, {2, 2}));
}

TEST_CASE("the rule writes the published lists of ZB-H1, K = 4, M = 6, and ZB-H2, K = 4, M = 8") {
  const auto h1 = hand_written_orders(std::vector<Room>(4, Room(6, 6)))[1];
  REQUIRE(h1.name == "ZB-H1");
  CHECK(text_of(h1.order[0]) == "F0 F1 F2 F3 I0 W0 F4 I1 W1 F5 I2 W2 I3 W3 I4 W4 I5 W5");
  CHECK(text_of(h1.order[1]) == "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5");
  CHECK(text_of(h1.order[2]) == "F0 F1 I0 F2 I1 F3 I2 W0 F4 I3 W1 F5 I4 W2 I5 W3 W4 W5");
  CHECK(text_of(h1.order[3]) == "F0 I0 F1 I1 F2 I2 F3 I3 W0 F4 I4 W1 F5 I5 W2 W3 W4 W5");
  const auto h2 = hand_written_orders(std::vector<Room>(4, Room(8, 8)))[0];
  REQUIRE(h2.name == "ZB-H2");
  CHECK(text_of(h2.order[0]) == "F0 F1 F2 F3 F4 F5 F6 I0 W0 F7 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7");
  CHECK(text_of(h2.order[1]) == "F0 F1 F2 F3 F4 I0 F5 I1 F6 I2 W0 F7 I3 W1 I4 W2 I5 W3 I6 W4 I7 W5 W6 W7");
  CHECK(text_of(h2.order[2]) == "F0 F1 F2 I0 F3 I1 F4 I2 F5 I3 F6 I4 W0 F7 I5 W1 I6 W2 I7 W3 W4 W5 W6 W7");
  CHECK(text_of(h2.order[3]) == "F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 W0 F7 I7 W1 W2 W3 W4 W5 W6 W7");
}

TEST_CASE("the rule equals the lists of the schedules for every K and M") {
  for (int k = 1; k <= 8; ++k) {
    for (int m = 1; m <= 20; ++m) {
      CAPTURE(k);
      CAPTURE(m);
      const auto orders = hand_written_orders(std::vector<Room>(at(k), Room(at(m), m)));
      REQUIRE(orders.size() == 3);
      const ProgramSet placement = test::straight_placement(k, m);
      CHECK(to_programs(orders[0].order, placement).workers == test::zb_h2(k, m).workers);
      CHECK(to_programs(orders[1].order, placement).workers == test::zb_h1(k, m).workers);
      CHECK(to_programs(orders[2].order, placement).workers == test::split_1f1b(k, m).workers);
    }
  }
}

TEST_CASE("hand-written orders that need more room than there is are left out") {
  // K = 4: H2 holds 7, H1 4 on every worker, 1f1b 4 on the first only.
  const auto names = [](int limit) {
    Room room;
    for (int w = 0; w < 8; ++w) room.push_back(std::min(8, w + limit));
    std::string text;
    for (const NamedOrder& order : hand_written_orders(std::vector<Room>(4, room))) text += order.name + "; ";
    return text;
  };
  CHECK(names(7) == "ZB-H2; ZB-H1; 1F1B, split; ");
  CHECK(names(6) == "ZB-H1; 1F1B, split; ");
  CHECK(names(3) == "");
}

TEST_CASE("with little room the rule runs W earlier") {
  // Window 3, no W before the end by itself; two may be held.
  CHECK(text_of(apply({3, 9}, {2, 3, 4, 4})) == "F0 F1 I0 W0 F2 I1 W1 F3 I2 I3 W2 W3");
  for (int window = 1; window <= 5; ++window) {
    for (int delay = 0; delay <= 5; ++delay) {
      for (int limit = 1; limit <= 5; ++limit) {
        Room room;
        for (int w = 0; w < 5; ++w) room.push_back(std::min(5, w + limit));
        const WorkerOrder order = apply({window, delay}, room);
        CHECK(order.size() == 15);
        CHECK(is_valid(order, room));
      }
    }
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
