// Patterns of names, and what they say of a weight.
#include "librun/options/weight_rules.h"

#include "tests/libprofile/core/error_text.h"
#include "tests/librun/models.h"
#include "tests/support/doctest.h"

namespace weight_rules_test {

using namespace pp;
using namespace pp::run;
using pp::test::error_text;

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
}

}  // namespace weight_rules_test
