// Convolutions for which oneDNN's gradients are wrong (libprofile/model/README.md), against plain autograd in
// float64. All others: op_cases.h.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "libprofile/model/weight_sums.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

using namespace pp::model;

namespace {

/// Normal numbers; images channels last.
struct Draw {
  explicit Draw(std::uint64_t seed) : generator(at::make_generator<at::CPUGeneratorImpl>(seed)) {}
  at::Tensor operator()(at::IntArrayRef sizes) {
    const at::Tensor drawn = at::empty(sizes).normal_(0, 1, generator);
    return sizes.size() == 4 ? drawn.contiguous(at::MemoryFormat::ChannelsLast) : drawn;
  }
  at::Generator generator;
};

}  // namespace

TEST_SUITE("libprofile/model/convolution") {
  // oneDNN's own gradient of these, of 4 channels with AVX2, is wrong or ends the process.
  TEST_CASE("the weight gradient of a strided 1x1 convolution of few channels, channels last") {
    Draw draw{5};
    // Of 32 rows 0, 2 .. 30 are read, of 33 also 32.
    for (const auto& [channels, rows] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 32}, {4, 32}, {4, 33}, {15, 32}, {16, 32}}) {
      CAPTURE(channels);
      CAPTURE(rows);
      const pp::Attributes attributes{
          {"out_channels", std::int64_t{8}}, {"kernel_size", std::int64_t{1}}, {"stride", std::int64_t{2}}};
      const BoundLayer layer = bind_layer("conv2d", test::complete("conv2d", attributes));
      const std::vector<at::Tensor> x{draw({32, channels, rows, 32})};
      const std::vector<at::Tensor> weights{draw({8, channels, 1, 1}), at::zeros({8})};
      for (const at::Tensor& weight : weights) weight.requires_grad_();
      const c10::AutoGradMode no_grad(false);
      Tensors saved;
      LayerContext context;
      context.saved = &saved;
      const at::Tensor gradient = draw(layer.forward(x, weights, context)[0].sizes());
      std::vector<at::Tensor> sums(2);
      WeightSums sum(weights, sums, {});
      layer.backward->weights(saved, weights, gradient, sum);

      // Plain autograd in float64, contiguous: other kernels.
      std::vector<at::Tensor> exact{weights[0].detach().to(at::kDouble).contiguous(),
                                    weights[1].detach().to(at::kDouble)};
      for (at::Tensor& weight : exact) weight.requires_grad_();
      const c10::AutoGradMode grad(true);
      at::conv2d(x[0].to(at::kDouble).contiguous(), exact[0], exact[1], 2)
          .backward(gradient.to(at::kDouble).contiguous());
      // Sums of 8704 products of unit variance, about 93, each addition rounded by at most 6e-8 of it.
      for (const std::size_t i : {0U, 1U}) CHECK(sums[i].to(at::kDouble).allclose(exact[i].grad(), 1e-4, 1e-2));
    }
  }

  // oneDNN's gradient of the first never comes, with AVX2.
  TEST_CASE("a strided transposed 1x1 convolution of few channels, channels last") {
    Draw draw{6};
    struct Setting {
      std::int64_t padding, more, groups;
    };
    for (const Setting& s : {Setting{0, 1, 1}, Setting{1, 0, 2}}) {
      CAPTURE(s.padding);
      const pp::Attributes attributes{{"out_channels", std::int64_t{4}}, {"kernel_size", std::int64_t{1}},
                                      {"stride", std::int64_t{2}},       {"padding", s.padding},
                                      {"output_padding", s.more},        {"groups", s.groups}};
      const BoundLayer layer = bind_layer("conv_transpose2d", test::complete("conv_transpose2d", attributes));
      std::vector<at::Tensor> own{draw({32, 8, 16, 15}), draw({8, 4 / s.groups, 1, 1}), draw({4})};
      std::vector<at::Tensor> exact;
      for (at::Tensor& tensor : own) {
        exact.push_back(tensor.to(at::kDouble).contiguous().requires_grad_());
        tensor.requires_grad_();
      }
      LayerContext context;
      const at::Tensor y = layer.forward(std::span(own).first(1), std::span(own).subspan(1), context)[0];
      const at::Tensor whole =
          at::conv_transpose2d(exact[0], exact[1], exact[2], 2, s.padding, s.more, s.groups);
      REQUIRE(y.sizes() == whole.sizes());
      CHECK(y.to(at::kDouble).allclose(whole, 1e-5, 1e-5));
      const at::Tensor gradient = draw(y.sizes());
      y.backward(gradient);
      whole.backward(gradient.to(at::kDouble).contiguous());
      for (std::size_t i = 0; i < own.size(); ++i)
        CHECK(own[i].grad().to(at::kDouble).allclose(exact[i].grad(), 1e-4, 1e-2));
    }
  }
}
