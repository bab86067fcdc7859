// Convolutions as products of matrices against LibTorch's own, forward, both gradients, and the limits of their
// use.
#include "libprofile/model/ops/convolution_kernels.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <vector>

#include "libprofile/device/memory_meter.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

namespace convolution_product_test {

using namespace pp::model;
using ops::Convolution;

namespace {

struct Case {
  Convolution convolution;
  std::vector<std::int64_t> x, weight;
};

// Pointwise, with a stride too; with padding; strided and unequal sides; dilated.
const std::vector<Case> kCases{
    {{{0, 0}, 1, 1, 1}, {3, 4, 2, 2}, {5, 4, 1, 1}}, {{{0, 0}, 2, 1, 1}, {2, 3, 5, 7}, {4, 3, 1, 1}},
    {{{1, 1}, 1, 1, 1}, {2, 3, 4, 4}, {6, 3, 3, 3}}, {{{0, 2}, 2, 1, 1}, {2, 3, 5, 7}, {4, 3, 2, 5}},
    {{{2, 2}, 1, 2, 1}, {1, 2, 6, 5}, {3, 2, 3, 3}},
};

}  // namespace

TEST_SUITE("libprofile/model/convolution_product") {
  TEST_CASE("forward and gradients are those of a convolution") {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    const auto draw = [&](at::IntArrayRef sizes) {
      return at::empty(sizes, at::kDouble).normal_(0, 1, generator);
    };
    for (const Case& one : kCases) {
      const Convolution& c = one.convolution;
      CAPTURE(one.x);
      const at::Tensor x = draw(one.x), weight = draw(one.weight), bias = draw({one.weight[0]});
      const at::Tensor y = at::conv2d(x, weight, bias, c.stride, c.padding, c.dilation);
      const at::Tensor found = ops::convolve_by_product(c, x, weight, bias);
      CHECK(found.is_contiguous());
      CHECK(found.allclose(y, 1e-12, 1e-12));
      CHECK(ops::convolve_by_product(c, x, weight, {})
                .allclose(at::conv2d(x, weight, {}, c.stride, c.padding, c.dilation), 1e-12, 1e-12));

      const at::Tensor gradient = draw(y.sizes());
      const auto [by_x, by_weight, by_bias] =
          at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(bias.sizes()), c.stride,
                                   c.padding, c.dilation, false, 0, 1, {true, true, true});
      CHECK(ops::input_gradient_by_product(c, gradient, x, weight).allclose(by_x, 1e-12, 1e-12));
      const std::vector<at::Tensor> weights{at::Tensor(weight.detach().requires_grad_())};
      std::vector<at::Tensor> sums(1);
      WeightSums sum(weights, sums, {});
      for (int times = 1; times <= 2; ++times) {
        ops::add_weight_gradient_by_product(c, gradient, x, weight, sum);
        CHECK(sums[0].allclose(by_weight.mul(times), 1e-12, 1e-12));
      }
    }
  }

  // Of 2x2 positions: 128 channels are 16 times as many and more for 2 samples, 8 only for the weight gradient.
  TEST_CASE("the op in float32 gives LibTorch's result either way") {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
    for (const std::int64_t out : {128, 8, 4}) {
      CAPTURE(out);
      const pp::Attributes attributes{
          {"out_channels", out}, {"kernel_size", std::int64_t{3}}, {"padding", std::int64_t{1}}};
      const BoundLayer layer = bind_layer("conv2d", pp::model::test::complete("conv2d", attributes));
      const auto draw = [&](at::IntArrayRef sizes) { return at::empty(sizes).normal_(0, 1, generator); };
      const std::vector<at::Tensor> x{draw({2, 5, 2, 2})}, weights{draw({out, 5, 3, 3}), draw({out})};
      for (const at::Tensor& weight : weights) weight.requires_grad_();
      const c10::AutoGradMode no_grad(false);
      Tensors saved;
      LayerContext context;
      context.saved = &saved;
      const at::Tensor y = layer.forward(x, weights, context)[0], gradient = draw(y.sizes());
      CHECK(y.allclose(at::conv2d(x[0], weights[0], weights[1], 1, 1), 1e-4, 1e-4));
      std::vector<at::Tensor> sums(2);
      WeightSums sum(weights, sums, {});
      const Tensors by_input = layer.backward->inputs(saved, weights, gradient);
      layer.backward->weights(saved, weights, gradient, sum);
      const auto [by_x, by_weight, by_bias] =
          at::convolution_backward(gradient, x[0], weights[0], at::OptionalIntArrayRef(weights[1].sizes()), 1,
                                   1, 1, false, 0, 1, {true, true, true});
      CHECK(by_input[0].allclose(by_x, 1e-4, 1e-4));
      CHECK(sums[0].allclose(by_weight, 1e-4, 1e-4));
      CHECK(sums[1].allclose(by_bias, 1e-4, 1e-4));
    }
  }

  // 2 samples of 2x2 positions: 5 channels are 160 bytes; what each output reads 9 times as much.
  TEST_CASE("under autograd it holds its output alone, and has LibTorch's gradients") {
    pp::profile::install_memory_meter();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    const auto draw = [&](at::IntArrayRef sizes) { return at::empty(sizes).normal_(0, 1, generator); };
    for (const bool biased : {true, false}) {
      CAPTURE(biased);
      const Convolution c{{1, 1}, 1, 1, 1};
      const std::vector<at::Tensor> leaves{draw({2, 5, 2, 2}).requires_grad_(),
                                           draw({128, 5, 3, 3}).requires_grad_(), draw({128}).requires_grad_()};
      const at::Tensor bias = biased ? leaves[2] : at::Tensor();
      REQUIRE(ops::forward_is_product(c, leaves[0], leaves[1]));
      const pp::profile::MemoryAccount account;
      at::Tensor y;
      {
        const pp::profile::ChargeMemory charged(account);
        y = ops::convolve_by_product(c, leaves[0], leaves[1], bias);
      }
      CHECK(account.live().value == 128 * 2 * 4 * 4);
      const at::Tensor gradient = draw(y.sizes());
      y.backward(gradient);
      const auto [by_x, by_weight, by_bias] =
          at::convolution_backward(gradient, leaves[0], leaves[1], at::OptionalIntArrayRef(leaves[2].sizes()),
                                   1, 1, 1, false, 0, 1, {true, true, true});
      CHECK(leaves[0].grad().allclose(by_x, 1e-4, 1e-4));
      CHECK(leaves[1].grad().allclose(by_weight, 1e-4, 1e-4));
      if (biased) CHECK(leaves[2].grad().allclose(by_bias, 1e-4, 1e-4));
    }
  }

  // 2 samples of 4x4 positions, padding 1 and kernels of 3: 32 positions.
  TEST_CASE("used where output channels are many beside positions") {
    const Convolution c{{1, 1}, 1, 1, 1};
    const at::Tensor x = at::empty({2, 8, 4, 4});
    const auto weight = [](std::int64_t out) { return at::empty({out, 8, 3, 3}); };
    CHECK(ops::forward_is_product(c, x, weight(512)));  // 16 * 32
    CHECK_FALSE(ops::forward_is_product(c, x, weight(511)));
    CHECK(ops::weight_gradient_is_product(c, x, weight(32)));
    CHECK_FALSE(ops::weight_gradient_is_product(c, x, weight(31)));
    // A stride of 2 leaves 2x2 positions a sample.
    CHECK(ops::forward_is_product({{1, 1}, 2, 1, 1}, x, weight(128)));
    CHECK_FALSE(ops::forward_is_product({{1, 1}, 2, 1, 1}, x, weight(127)));
    CHECK_FALSE(ops::forward_is_product({{1, 1}, 1, 1, 2}, x, weight(512)));
    CHECK_FALSE(ops::forward_is_product(c, x.to(at::kDouble), weight(512).to(at::kDouble)));
  }
}

}  // namespace convolution_product_test
