// The cross-checks of random problems, a sample of each.
#include "tests/libplan/search/cross_checks.h"

#include <algorithm>

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/cross_checks");

namespace pp::plan {

TEST_CASE("bounds, refusals, prices and steps of random problems agree with what the planner did not write") {
  for (const test::CrossCheck& check : test::kCrossChecks) {
    CAPTURE(check.name);
    for (int seed = 1; seed <= check.sample; ++seed) {
      CAPTURE(seed);
      test::Random random(static_cast<std::uint64_t>(seed));
      CHECK(check.run(random) == "");
    }
  }
}

// In turn: a search without end, as a stage of hardly more than a micro-batch per replica costs less with more
// layers; bounds above a plan, two, as a reversed schedule holds all micro-batches only while the smallest runs
// back; refusals of plans that fit, in an order of the layers that is none of the usual, and as a choice of no
// layers was taken for one that makes room; lists of two schedules behind the better alone, as the other's plan
// had ruled out a start of local moves, and the orders in which alone it fits; two in which pipelines side by
// side were crowded out by single ones, with which the other's plan did away; two more in which the other's
// plan closed what local moves need; a refusal, as a stage's workspaces were those of another order of its
// layers.
TEST_CASE("random problems that showed defects show none") {
  struct Shown {
    std::string_view check;
    std::uint64_t seed;
  };
  for (const auto& [name, seed] :
       {Shown{"recompute", 0x154b59e2cc420d17U}, Shown{"stopped", 0x4f751b96c35f5c2eU},
        Shown{"certificate", 0xf8c6bb90bd6ba1d4U}, Shown{"certificate", 0xbcb2cda80fcaa378U},
        Shown{"recompute", 0x8f39fffeac2e9960U}, Shown{"pair", 0xd2db79e6e6db8591U},
        Shown{"pair", 0xf25ed80c4e7f1749U}, Shown{"pair", 0x85abba6e4ad0afa8U},
        Shown{"pair", 0x6847799284977a57U}, Shown{"pair", 0x64ea524fc2db8105U},
        Shown{"pair", 0x1306963fd7dcd9bcU}, Shown{"pair", 0x67cfbcdb0e0007f4U},
        Shown{"pair", 0x2904a2735814d647U}, Shown{"pair", 0x603c86891d352870U},
        Shown{"pair", 0x6bd48a3f231c595eU}, Shown{"pair", 0x91d8fd769a8b0a7U},
        Shown{"pair", 0xe2dd0486a05610ccU}, Shown{"pair", 0xf241eb5b9579fe3bU},
        Shown{"certificate", 0x634555d63dd5be65U}}) {
    CAPTURE(seed);
    test::Random random(seed);
    CHECK(std::ranges::find(test::kCrossChecks, name, &test::CrossCheck::name)->run(random) == "");
  }
}

}  // namespace pp::plan

TEST_SUITE_END();
