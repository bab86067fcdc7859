// Rotary positions by hand: frequencies of every scaling, pairs of both kinds, and back.
#include "libprofile/model/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

namespace rotary_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
using ops::RotarySettings;

namespace {

Attribute word(const char* text) { return std::string(text); }

RotarySettings settings(Attributes attributes) {
  attributes.emplace("num_heads", std::int64_t{1});
  return RotarySettings(complete("grouped_query_attention", attributes));
}

/// Within float32.
void check_frequencies(const Attributes& attributes, const std::vector<double>& expected) {
  const at::Tensor found = ops::rotary_frequencies(settings(attributes));
  REQUIRE(found.numel() == std::ssize(expected));
  for (std::int64_t i = 0; i < found.numel(); ++i)
    CHECK(found[i].item<double>() == doctest::Approx(expected[static_cast<std::size_t>(i)]).epsilon(1e-6));
}

at::Tensor heads(std::int64_t width) {
  return at::arange(2 * 3 * 2 * width, at::kDouble).mul(0.37).sin().view({2, 3, 2, width});
}

ops::RotaryTable::Rows rows_for(const RotarySettings& rotary) {
  ops::RotaryTable table(rotary);
  const ops::RotaryTable::Rows rows = table.rows(3, at::TensorOptions(at::kDouble));
  return {rows.cosines.unsqueeze(1), rows.sines.unsqueeze(1)};
}

}  // namespace

TEST_SUITE("libprofile/model/rotary") {
  TEST_CASE("frequencies fall by powers of the base; linear scaling divides all of them") {
    // Of 4 elements: 1 and 10000^(-2/4) = 0.01; of 3 that are rounded up to 4: 1 and 10000^(-2/3).
    check_frequencies({{"rotary_dim", whole(4)}}, {1, 0.01});
    check_frequencies({{"rotary_dim", whole(4)}, {"rotary_exponent_dim", whole(3)}},
                      {1, std::pow(10000.0, -2.0 / 3)});
    check_frequencies({{"rotary_dim", whole(4)}, {"rotary_scaling", word("linear")}, {"rotary_factor", 4.0}},
                      {0.25, 0.0025});
  }

  TEST_CASE("llama3 keeps short wavelengths, stretches long ones, and blends between") {
    // Base 100, 6 elements: frequencies 1, 100^(-1/3), 100^(-2/3); wavelengths 6.3, 29.2, 135. Of 64 positions
    // those below 64/4 = 16 stay, those above 64/1 = 64 are divided by 8, and 29.2 is blended: its share is
    // (64/29.16 - 1) / (4 - 1).
    const double middle = std::pow(100.0, -1.0 / 3), length = 2 * std::numbers::pi / middle;
    const double share = (64 / length - 1) / 3;
    check_frequencies({{"rotary_dim", whole(6)},
                       {"rotary_base", 100.0},
                       {"rotary_scaling", word("llama3")},
                       {"rotary_factor", 8.0},
                       {"rotary_original_length", whole(64)}},
                      {1, (1 - share) * middle / 8 + share * middle, std::pow(100.0, -2.0 / 3) / 8});
  }

  TEST_CASE("yarn ramps over the pairs from those that turn often to those that hardly turn") {
    // Base 10, 8 elements, 64 positions: pair i turns 64 10^(-i/4) / 2 pi times. Turns of 4 and 1 stand at
    // pairs 4 log10(64 / (2 pi 4)) = 1.62 and 4 log10(64 / (2 pi)) = 4.03, rounded outwards to 1 and 5. So
    // pairs 0 and 1 stay, 2 and 3 go a quarter and a half of the way to a factor of 2.
    const auto frequency = [](int i) { return std::pow(10.0, -i / 4.0); };
    const auto ramped = [&](int i, double ramp) { return frequency(i) / 2 * ramp + frequency(i) * (1 - ramp); };
    check_frequencies({{"rotary_dim", whole(8)},
                       {"rotary_base", 10.0},
                       {"rotary_scaling", word("yarn")},
                       {"rotary_factor", 2.0},
                       {"rotary_beta_fast", 4.0},
                       {"rotary_beta_slow", 1.0},
                       {"rotary_original_length", whole(64)}},
                      {1, frequency(1), ramped(2, 0.25), ramped(3, 0.5)});
  }

  TEST_CASE("halves pair an element with the one half a width on, interleaved ones are neighbours") {
    const RotarySettings halves = settings({{"rotary_dim", whole(4)}});
    const RotarySettings neighbours = settings({{"rotary_dim", whole(4)}, {"rotary_interleaved", true}});
    const at::Tensor x = heads(5);  // the fifth element is not turned
    const ops::RotaryTable::Rows rows = rows_for(halves);
    const at::Tensor a = ops::turned(halves, x, rows), b = ops::turned(neighbours, x, rows);
    const double angle = 2 * 0.01;  // position 2, second pair
    for (const std::int64_t head : {0, 1}) {
      const auto at = [&](const at::Tensor& t, std::int64_t i) { return t[1][2][head][i].item<double>(); };
      CHECK(at(a, 1) == doctest::Approx(at(x, 1) * std::cos(angle) - at(x, 3) * std::sin(angle)));
      CHECK(at(a, 3) == doctest::Approx(at(x, 3) * std::cos(angle) + at(x, 1) * std::sin(angle)));
      CHECK(at(b, 2) == doctest::Approx(at(x, 2) * std::cos(angle) - at(x, 3) * std::sin(angle)));
      CHECK(at(b, 3) == doctest::Approx(at(x, 3) * std::cos(angle) + at(x, 2) * std::sin(angle)));
      CHECK(at(a, 4) == at(x, 4));
    }
  }

  TEST_CASE("turning in place has the same bits, and turning back undoes it") {
    for (const bool interleaved : {false, true}) {
      const RotarySettings rotary = settings({{"rotary_dim", whole(4)}, {"rotary_interleaved", interleaved}});
      const ops::RotaryTable::Rows rows = rows_for(rotary);
      const at::Tensor x = heads(6);
      const at::Tensor y = x.clone();
      ops::turn(rotary, y, rows, ops::Turn::forth);
      CHECK(y.equal(ops::turned(rotary, x, rows)));
      ops::turn(rotary, y, rows, ops::Turn::back);
      CHECK(y.allclose(x, 1e-6, 1e-6));  // sines and cosines are float32
    }
  }

  TEST_CASE("a table grows with the positions, and is held once per type") {
    ops::RotaryTable table(settings({{"rotary_dim", whole(4)}, {"rotary_magnitude", 2.0}}));
    const at::Tensor few = table.rows(2, at::TensorOptions(at::kFloat)).cosines;
    const at::Tensor more = table.rows(5, at::TensorOptions(at::kFloat)).cosines;
    CHECK(more.narrow(0, 0, 2).equal(few));
    CHECK(more[0][0].item<double>() == 2);
    table.rows(5, at::TensorOptions(at::kDouble));
    std::vector<at::Tensor> held;
    table.collect(held);
    CHECK(held.size() == 4);
  }
}

}  // namespace rotary_test
