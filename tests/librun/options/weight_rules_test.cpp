// Options that are lists or files: rules of weights, and learning rates by step.
#include "librun/options/weight_rules.h"

#include "libprofile/core/error.h"
#include "librun/options/learning_rate.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/support/doctest.h"

namespace weight_rules_test {

using namespace pp;
using namespace pp::run;
using pp::test::error_text;

namespace {

std::vector<double> rates(const RateSchedule& schedule, double base, Step total) {
  std::vector<double> all;
  for (Step t = 0; t < total; ++t) all.push_back(rate_at(schedule, base, total, t));
  return all;
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-12));
}

}  // namespace

TEST_SUITE("librun/options/weight_rules") {
  TEST_CASE("a plain pattern stands anywhere, one with * or ? is the whole name") {
    CHECK(matches("norm", "model.layers.0.input_layernorm.weight"));
    CHECK_FALSE(matches("norm", "model.layers.0.mlp.weight"));
    CHECK(matches("layers.1.", "layers.1.weight"));
    CHECK_FALSE(matches("layers.1.", "layers.11.weight"));
    CHECK(matches("*.bias", "fc.bias"));
    CHECK_FALSE(matches("*.bias", "fc.bias.scale"));
    CHECK(matches("layers.?.*", "layers.3.mlp.weight"));
    CHECK_FALSE(matches("layers.?.*", "layers.13.mlp.weight"));
    CHECK(matches("a*b*c", "aXbYbZc"));
    CHECK_FALSE(matches("a*b*c", "aXcYb"));
    CHECK(matches("*", ""));
    CHECK_FALSE(matches("?", ""));
  }

  TEST_CASE("many stars take no time") {
    std::string pattern, name(4000, 'a');
    for (int i = 0; i < 500; ++i) pattern += "*a";
    CHECK_FALSE(matches(pattern + "b", name));  // backtracking over every star would take 4000^500 steps
  }

  TEST_CASE("the first factor that matches counts") {
    const WeightRules rules{.no_decay = {"bias", "norm"}, .rate_factors = {{"head", 2}, {"*", 0.5}}};
    CHECK(rules.rate_factor("head.weight") == 2);
    CHECK(rules.rate_factor("tokens.weight") == 0.5);
    CHECK_FALSE(rules.decays("head.bias"));
    CHECK(rules.decays("head.weight"));
    CHECK(WeightRules{}.rate_factor("x") == 1);
    CHECK(WeightRules{}.decays("x"));
  }

  TEST_CASE("lists are read and written") {
    CHECK(parse_patterns("bias,norm") == std::vector<std::string>{"bias", "norm"});
    CHECK(text_of_patterns({"bias", "*.norm"}) == "bias,*.norm");
    const auto factors = parse_rate_factors("embed=0.1,layers.0.*=0.5");
    CHECK(factors == std::vector<std::pair<std::string, double>>{{"embed", 0.1}, {"layers.0.*", 0.5}});
    CHECK(text_of_factors(factors) == "embed=0.1,layers.0.*=0.5");
  }

  TEST_CASE("what is no list is refused") {
    CHECK(error_text([] { return parse_patterns("bias,,norm"); }) ==
          "[usage] --no-decay: an empty pattern; write patterns with commas between");
    for (const char* text :
         {"embed", "=1", "embed=", "embed=x", "embed=-1", "embed=nan", "embed=1e9", "embed=1 "}) {
      CAPTURE(text);
      CHECK(error_text([&] { return parse_rate_factors(text); }) ==
            "[usage] --lr-factors: \"" + std::string(text) +
                "\" is no PATTERN=FACTOR with a factor from 0 to 1000000; write embed=0.1,layers.0.*=0.5");
    }
  }

  TEST_CASE("a pattern of no trained parameter is refused with names that there are") {
    ModelGraph graph = pp::test::mlp(2);
    graph.layers.front().frozen.all = true;
    const ResolvedModel model = resolve(graph);
    check_rules({.no_decay = {"bias"}, .rate_factors = {{"*.weight", 2}}}, model);
    const std::string message = error_text([&] { return check_rules({.no_decay = {"nrom"}}, model), 0; });
    CHECK(message.starts_with("[usage] --no-decay: no trained parameter matches \"nrom\"; their names are "));
    CHECK(message.ends_with("; a pattern stands anywhere in a name, one with * or ? is all of it"));
    const std::string frozen = graph.layers.front().name;
    CHECK(error_text([&] {
            return check_rules({.rate_factors = {{frozen + ".*", 2}}}, model), 0;
          }).starts_with("[usage] --lr-factors: no trained parameter matches \"" + frozen + ".*\""));
  }

  TEST_CASE("constant, with and without warm-up") {
    CHECK(rates({}, 0.1, 3) == std::vector<double>{0.1, 0.1, 0.1});
    check_near(rates({.warm_up = 4}, 0.1, 6), {0.025, 0.05, 0.075, 0.1, 0.1, 0.1});
  }

  TEST_CASE("step: a factor after every period behind the warm-up") {
    check_near(rates({.kind = RateKind::step, .period = 2, .factor = 0.5}, 1, 6), {1, 1, 0.5, 0.5, 0.25, 0.25});
    check_near(rates({.kind = RateKind::step, .warm_up = 1, .period = 2, .factor = 0.1}, 2, 5),
               {2, 2, 2, 0.2, 0.2});
  }

  TEST_CASE("cosine: from the base to the least over the steps behind the warm-up") {
    // (1 + cos(pi t / 4)) / 2 = 1, 0.853553..., 0.5, 0.146446...
    check_near(rates({.kind = RateKind::cosine}, 1, 4), {1, 0.8535533905932737, 0.5, 0.14644660940672624});
    check_near(rates({.kind = RateKind::cosine, .warm_up = 2, .least = 0.5}, 1, 6),
               {0.5, 1, 1, 0.9267766952966369, 0.75, 0.5732233047033631});
  }

  TEST_CASE("a file of steps: each rate holds until the next") {
    const TestFolder folder;
    write_file(folder.path() / "rates.txt", "# step rate\n0 0.1\n\n3 0.01  # later\n5 0\n");
    const RateSchedule schedule{.kind = RateKind::table, .table = read_rates(folder.path() / "rates.txt")};
    CHECK(rates(schedule, 7, 7) == std::vector<double>{0.1, 0.1, 0.1, 0.01, 0.01, 0, 0});
  }

  TEST_CASE("a file that is wrong is refused with its line") {
    const TestFolder folder;
    const std::filesystem::path path = folder.path() / "r";
    const auto refusal = [&](const char* text) {
      write_file(path, text);
      try {
        read_rates(path);
        return std::string("read");
      } catch (const Error& error) {
        return std::string(error.what()).substr(path.string().size());
      }
    };
    CHECK(refusal("") == ": has no rates; give lines such as `0 0.1`");
    CHECK(refusal("0 0.1\n1\n") == ":2: must be a step and a rate, as in `100 0.01`");
    CHECK(refusal("0 0.1 5\n") == ":1: must be a step and a rate, as in `100 0.01`");
    CHECK(refusal("1 0.1\n") == ":1: the first step is 1; begin with step 0");
    CHECK(refusal("0 0.1\n5 1\n5 2\n") == ":3: step 5 does not follow 5");
    CHECK(refusal("0 nan\n") == ":1: rate \"nan\" is not a number of at least 0");
    CHECK(refusal("0 -1\n") == ":1: rate \"-1\" is not a number of at least 0");
    CHECK(refusal("x 1\n") == ":1: step \"x\" is not a whole number");
  }
}

}  // namespace weight_rules_test
