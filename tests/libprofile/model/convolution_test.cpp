// Convolutions for which oneDNN's gradients are wrong (libprofile/model/README.md), against plain autograd in
// float64. All others: op_cases.h.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/gradient_sums.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

namespace convolution_test {

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

/// One layer over x [4, 32, 32]: a strided 1x1 convolution of 4 channels to 8, with a bias.
BoundLayer strided_layer(const std::string& layer) {
  return bind_layer(pp::resolve(pp::parse_model(R"({ "format": "pp.model", "version": 1, "name": "one",
    "inputs": [{ "name": "x", "shape": [4, 32, 32] }],
    "layers": [{ "name": "it", "inputs": ["x"], )" +
                                                layer + R"( }], "outputs": ["it"] })")),
                    0);
}

std::string call_of(const std::string& target, const std::string& sizes) {
  return R"("op": "aten", "call": { "target": ")" + target +
         R"(", "arguments": { "input": { "input": 0 }, "weight": { "parameter": "w" }, "bias": { "parameter": "b" }, )" +
         sizes + R"( }, "parameters": [{ "name": "w", "shape": [8, 4, 1, 1] }, { "name": "b", "shape": [8] }],
         "outputs": [{ "shape": [8, 16, 16] }] })";
}

/// Every way to it in a model but the written backward.
const std::vector<std::string> kWays{
    R"("op": "conv2d", "attributes": { "out_channels": 8, "kernel_size": 1, "stride": 2 })",
    R"("op": "graph", "outputs": ["c"], "nodes": [{ "name": "c", "op": "conv2d", "inputs": ["x"],
       "attributes": { "out_channels": 8, "kernel_size": 1, "stride": 2 } }])",
    call_of("aten::conv2d", R"("stride": [2, 2])"),
    call_of("aten::conv2d", R"("stride": [2])"),
    call_of("aten::conv2d.padding", R"("stride": [2, 2], "padding": "valid")"),
    call_of("aten::convolution", R"("stride": [2, 2], "padding": [0, 0], "dilation": [1, 1],
            "transposed": false, "output_padding": [0, 0], "groups": 1)")};

std::vector<at::Tensor> in_float64(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> exact;
  for (const at::Tensor& tensor : tensors)
    exact.push_back(tensor.detach().to(at::kDouble).contiguous().requires_grad_());
  return exact;
}

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
      const BoundLayer layer = bind_layer("conv2d", pp::model::test::complete("conv2d", attributes));
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

  TEST_CASE("the same where autograd records it: in graphs, in calls, under autocast") {
    Draw draw{5};
    for (const bool autocast : {false, true}) {
      for (const std::string& way : kWays) {
        CAPTURE(way);
        CAPTURE(autocast);
        std::vector<at::Tensor> own{draw({32, 4, 32, 32}), draw({8, 4, 1, 1}), draw({8})};
        const std::vector<at::Tensor> exact = in_float64(own);
        for (at::Tensor& tensor : own) tensor.requires_grad_();
        const BoundLayer layer = strided_layer(way);
        LayerContext context;
        at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
        at::autocast::set_autocast_enabled(at::kCPU, autocast);
        const at::Tensor y = layer.forward(std::span(own).first(1), std::span(own).subspan(1), context)[0];
        at::autocast::set_autocast_enabled(at::kCPU, false);
        at::autocast::clear_cache();
        const at::Tensor gradient = draw(y.sizes());
        y.backward(gradient.to(y.scalar_type()));
        const at::Tensor whole = at::conv2d(exact[0], exact[1], exact[2], 2);
        whole.backward(gradient.to(at::kDouble).contiguous());
        // As above. In bfloat16 the weight gradient, of about sqrt(8192) = 90, is a sum over 32 images of which
        // each addition may be rounded by 2^-9 of it: sqrt(32) * 0.18 = 1. Twice as much is seen in one of 20
        // of the 160 elements, five times as much in none. Sums of 4 or 8 products: about 0.01.
        const double bound = autocast ? 5 : 1e-2;
        // LibTorch's autocast on CPUs knows conv2d, and not the operation behind it.
        const bool narrow = autocast && way.find("aten::convolution") == std::string::npos;
        CHECK((y.scalar_type() == (narrow ? at::kBFloat16 : at::kFloat)));
        CHECK(y.to(at::kDouble).allclose(whole, 0.02, 0.1));
        for (const std::size_t i : {0U, 1U, 2U}) {
          CAPTURE(i);
          CHECK(own[i].grad().to(at::kDouble).allclose(exact[i].grad(), 1e-2, bound));
        }
      }
    }
  }

  // A sequence whose channels come last, as after a transpose, is an image of one row in that layout.
  TEST_CASE("the weight gradient of a strided convolution of sequences with kernels of 1") {
    Draw draw{8};
    const pp::Attributes attributes{
        {"out_channels", std::int64_t{8}}, {"kernel_size", std::int64_t{1}}, {"stride", std::int64_t{2}}};
    const BoundLayer layer = bind_layer("conv1d", pp::model::test::complete("conv1d", attributes));
    std::vector<at::Tensor> own{draw({32, 1024, 4}).transpose(1, 2), draw({8, 4, 1}), draw({8})};
    const std::vector<at::Tensor> exact = in_float64(own);
    for (at::Tensor& tensor : own) tensor.requires_grad_();
    LayerContext context;
    const at::Tensor y = layer.forward(std::span(own).first(1), std::span(own).subspan(1), context)[0];
    const at::Tensor gradient = draw(y.sizes());
    y.backward(gradient);
    at::conv1d(exact[0], exact[1], exact[2], 2).backward(gradient.to(at::kDouble));
    for (const std::size_t i : {0U, 1U, 2U})
      CHECK(own[i].grad().to(at::kDouble).allclose(exact[i].grad(), 1e-4, 2e-2));  // 16384 products
  }

  TEST_CASE("a call of a strided transposed 1x1 convolution, each side with sizes of its own") {
    Draw draw{9};
    const std::string call =
        R"("op": "aten", "call": { "target": "aten::conv_transpose2d.input",
           "arguments": { "input": { "input": 0 }, "weight": { "parameter": "w" }, "stride": [3, 2],
                          "padding": [0, 1], "output_padding": [1, 0] },
           "parameters": [{ "name": "w", "shape": [4, 8, 1, 1] }], "outputs": [{ "shape": [8, 95, 61] }] })";
    std::vector<at::Tensor> own{draw({8, 4, 32, 32}), draw({4, 8, 1, 1})};
    const std::vector<at::Tensor> exact = in_float64(own);
    for (at::Tensor& tensor : own) tensor.requires_grad_();
    LayerContext context;
    const at::Tensor y =
        strided_layer(call).forward(std::span(own).first(1), std::span(own).subspan(1), context)[0];
    const at::Tensor whole = at::conv_transpose2d(exact[0], exact[1], {}, {3, 2}, {0, 1}, {1, 0});
    REQUIRE(y.sizes() == whole.sizes());
    CHECK(y.to(at::kDouble).allclose(whole, 1e-5, 1e-5));
    const at::Tensor gradient = draw(y.sizes());
    y.backward(gradient);
    whole.backward(gradient.to(at::kDouble));
    for (const std::size_t i : {0U, 1U})
      CHECK(own[i].grad().to(at::kDouble).allclose(exact[i].grad(), 1e-4, 1e-2));
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
      const BoundLayer layer =
          bind_layer("conv_transpose2d", pp::model::test::complete("conv_transpose2d", attributes));
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

}  // namespace convolution_test
