// Sums of weight gradients, by hand.
#include "libprofile/model/gradient_sums.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <array>

#include "tests/support/torch_test.h"

namespace weight_sums_test {

using namespace pp::model;

namespace {

at::Tensor matrix(double a, double b, double c, double d) {
  return at::tensor({a, b, c, d}, at::kDouble).view({2, 2});
}

}  // namespace

TEST_SUITE("libprofile/model/weight_sums") {
  TEST_CASE("gradients are added to the first one, in the given place") {
    const std::array weights{at::Tensor(at::zeros({2, 2}, at::kDouble).requires_grad_())};
    const std::array places{at::full({2, 2}, 99.0, at::kDouble)};  // what was there does not count
    std::array<at::Tensor, 1> sums;
    WeightSums all(weights, sums, places);
    all.add(0, matrix(3, 2, 7, 4));
    CHECK(places[0].equal(matrix(3, 2, 7, 4)));
    all.add(0, matrix(1, 1, 1, 1));
    CHECK(sums[0].is_same(places[0]));
    CHECK(sums[0].equal(matrix(4, 3, 8, 5)));
  }

  TEST_CASE("of a weight that is frozen nothing is added") {
    const std::array weights{at::zeros({2, 2}, at::kDouble), at::Tensor(at::zeros({2}).requires_grad_())};
    std::array<at::Tensor, 2> sums;
    WeightSums all(weights, sums, {});
    all.add(0, matrix(1, 2, 3, 4));
    all.add_product(0, matrix(1, 2, 3, 4), matrix(1, 2, 3, 4));
    CHECK(!sums[0].defined());
    CHECK(all.wants_any());
    CHECK_FALSE(all.wants(0));
  }

  TEST_CASE("products are added to the matrices of one parameter, also where sums are wider") {
    const std::array weights{at::Tensor(at::zeros({2, 2, 2}, at::kDouble).requires_grad_()),
                             at::Tensor(at::zeros({2, 2, 2}, at::kFloat).requires_grad_())};
    const std::array places{at::full({2, 2, 2}, 99.0, at::kDouble), at::full({2, 2, 2}, 99.0, at::kDouble)};
    std::array<at::Tensor, 2> sums;
    WeightSums all(weights, sums, places);
    for (const std::size_t p : {0, 1}) {
      const auto add = [&](std::int64_t part, const at::Tensor& left, const at::Tensor& right) {
        all.add_product(p, part, left.to(weights[p].scalar_type()), right.to(weights[p].scalar_type()));
      };
      add(1, matrix(1, 2, 3, 4), matrix(0, 1, 1, 0));
      add(0, matrix(1, 2, 3, 4), matrix(2, 0, 0, 2));
      add(1, matrix(1, 0, 0, 1), matrix(1, 1, 1, 1));
      CHECK(places[p][0].equal(matrix(2, 4, 6, 8)));
      CHECK(places[p][1].equal(matrix(3, 2, 5, 4)));
    }
  }

  TEST_CASE("without a place a sum never shares the gradient's memory with others, nor takes its layout") {
    const std::array weights{at::Tensor(at::zeros({2, 2}, at::kDouble).requires_grad_())};
    std::array<at::Tensor, 1> sums;
    WeightSums all(weights, sums, {});
    all.add(0, {});
    CHECK(!sums[0].defined());
    const at::Tensor gradient = matrix(1, 2, 3, 4);
    all.add(0, gradient.t());
    CHECK(sums[0].is_contiguous());
    all.add(0, gradient);
    CHECK(sums[0].equal(matrix(2, 5, 5, 8)));
    CHECK(gradient.equal(matrix(1, 2, 3, 4)));
  }
}

}  // namespace weight_sums_test
