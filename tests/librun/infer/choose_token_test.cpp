#include "librun/infer/sequences.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace choose_token_test {

using namespace pp;
using run::choose_token;

TEST_SUITE("librun/infer/choose_token") {
  TEST_CASE("greedy takes the largest, the first of equal ones") {
    CHECK(choose_token(std::array{1.0, 3.0, 2.0}, {}, 0.9) == 1);
    CHECK(choose_token(std::array{-1.0, -1.0, -2.0}, {}, 0.9) == 0);
  }

  TEST_CASE("drawn tokens take their softmax's share, in descending order") {
    // Logits ln 1, ln 6, ln 3: shares 0.1, 0.6, 0.3. In descending order 1 up to 0.6, 2 up to 0.9, then 0.
    const std::array logits{0.0, std::log(6.0), std::log(3.0)};
    const run::TokenRule rule{.temperature = 1};
    for (const auto& [draw, token] :
         std::vector<std::pair<double, int>>{{0, 1}, {0.59, 1}, {0.61, 2}, {0.89, 2}, {0.91, 0}, {0.999, 0}})
      CHECK(choose_token(logits, rule, draw) == token);
  }

  TEST_CASE("a temperature of a half squares the shares") {
    // 1, 36, 9 of 46: 0.7826, 0.9783, 1.
    const std::array logits{0.0, std::log(6.0), std::log(3.0)};
    const run::TokenRule rule{.temperature = 0.5};
    CHECK(choose_token(logits, rule, 0.78) == 1);
    CHECK(choose_token(logits, rule, 0.79) == 2);
    CHECK(choose_token(logits, rule, 0.97) == 2);
    CHECK(choose_token(logits, rule, 0.98) == 0);
  }

  TEST_CASE("only the largest k are drawn from") {
    // 6 and 3 of 9: up to 0.6667.
    const std::array logits{0.0, std::log(6.0), std::log(3.0)};
    const run::TokenRule rule{.temperature = 1, .top_k = 2};
    CHECK(choose_token(logits, rule, 0.66) == 1);
    CHECK(choose_token(logits, rule, 0.67) == 2);
    CHECK(choose_token(logits, rule, 0.999) == 2);
    CHECK(choose_token(logits, {.temperature = 1, .top_k = 1}, 0.999) == 1);
    CHECK(choose_token(logits, {.temperature = 1, .top_k = 9}, 0.95) == 0);
  }

  TEST_CASE("an infinite logit takes all, one that is no number is refused") {
    const double infinity = std::numeric_limits<double>::infinity();
    CHECK(choose_token(std::array{1.0, infinity, 2.0}, {.temperature = 1}, 0.999) == 1);
    CHECK(choose_token(std::array{1.0, -infinity}, {.temperature = 1}, 0.999) == 0);
    CHECK_THROWS_WITH(choose_token(std::array{1.0, std::nan("")}, {}, 0),
                      "the logit of token 1 is not a number; check the weights");
  }
}

}  // namespace choose_token_test
