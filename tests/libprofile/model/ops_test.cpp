// Every forward function against the torch.nn module of the same name, with the same weights.
#include "libprofile/model/ops.h"

#include <torch/torch.h>

#include <cmath>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
namespace nn = torch::nn;
namespace fn = torch::nn::functional;
using at::Tensor;

namespace {

Tensor run(std::string_view op, const Attributes& attributes, std::vector<Tensor> inputs,
           std::vector<Tensor> weights = {}, LayerContext context = {}) {
  return find_forward(op)(complete(op, attributes), inputs, weights, context).at(0);
}

/// The module's parameters in float64, in the module's order.
template <class Module>
std::vector<Tensor> parameters_of(Module& module) {
  module->to(torch::kDouble);
  return module->parameters();
}

Tensor images() { return torch::randn({2, 4, 6, 6}, torch::kDouble); }

bool close(const Tensor& a, const Tensor& b) { return a.allclose(b, 1e-12, 1e-12); }

}  // namespace

TEST_SUITE("libprofile/model/ops") {
  TEST_CASE("linear, conv2d and embedding equal their modules") {
    nn::Linear linear(5, 3);
    const Tensor x = torch::randn({2, 4, 5}, torch::kDouble);
    const auto weights = parameters_of(linear);
    CHECK(run("linear", {{"out_features", whole(3)}}, {x}, weights).equal(linear(x)));

    nn::Conv2d conv(nn::Conv2dOptions(4, 6, 3).stride(2).padding(1));
    const auto filters = parameters_of(conv);
    const Attributes attributes{
        {"out_channels", whole(6)}, {"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}};
    CHECK(run("conv2d", attributes, {images()}, filters).sizes() == at::IntArrayRef({2, 6, 3, 3}));
    const Tensor image = images();
    CHECK(run("conv2d", attributes, {image}, filters).equal(conv(image)));

    nn::Embedding embedding(11, 4);
    const Tensor tokens = torch::randint(0, 11, {2, 7}, torch::kLong);
    const auto rows = parameters_of(embedding);
    CHECK(run("embedding", {{"num_embeddings", whole(11)}, {"embedding_dim", whole(4)}}, {tokens}, rows)
              .equal(embedding(tokens)));
  }

  TEST_CASE("activations, pooling and shapes equal their functions") {
    const Tensor x = images();
    CHECK(run("relu", {}, {x}).equal(fn::relu(x)));
    CHECK(run("gelu", {}, {x}).equal(fn::gelu(x)));
    CHECK(run("tanh", {}, {x}).equal(torch::tanh(x)));
    CHECK(run("softmax", {}, {x}).equal(fn::softmax(x, -1)));
    CHECK(run("flatten", {}, {x}).equal(x.flatten(1)));
    CHECK(run("add", {}, {x, x, x}).equal(x + x + x));
    CHECK(run("concat", {}, {x, x.mul(2)}).equal(torch::cat({x, x.mul(2)}, 1)));
    CHECK(run("adaptive_avg_pool2d", {{"output_size", whole(3)}}, {x})
              .equal(fn::adaptive_avg_pool2d(x, fn::AdaptiveAvgPool2dFuncOptions(3))));
    const Attributes window{{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}};
    CHECK(run("max_pool2d", window, {x})
              .equal(fn::max_pool2d(x, fn::MaxPool2dFuncOptions(3).stride(2).padding(1))));
    CHECK(run("avg_pool2d", window, {x})
              .equal(fn::avg_pool2d(x, fn::AvgPool2dFuncOptions(3).stride(2).padding(1))));
  }

  TEST_CASE("without a stride, pooling windows do not overlap") {
    const Tensor x = images();
    CHECK(run("max_pool2d", {{"kernel_size", whole(2)}}, {x})
              .equal(fn::max_pool2d(x, fn::MaxPool2dFuncOptions(2))));
    CHECK(run("avg_pool2d", {{"kernel_size", whole(2)}}, {x})
              .equal(fn::avg_pool2d(x, fn::AvgPool2dFuncOptions(2))));
  }

  TEST_CASE("layer_norm and batch_norm2d equal their modules") {
    const Tensor x = images();
    nn::LayerNorm layer_norm(nn::LayerNormOptions({6}));
    const auto scales = parameters_of(layer_norm);
    torch::NoGradGuard no_grad;
    scales[0].normal_();
    scales[1].normal_();
    CHECK(close(run("layer_norm", {}, {x}, scales), layer_norm(x)));

    nn::BatchNorm2d batch_norm(4);
    const auto weights = parameters_of(batch_norm);
    weights[0].normal_();
    weights[1].normal_();
    CHECK(close(run("batch_norm2d", {}, {x}, weights), batch_norm(x)));
    batch_norm->eval();
    const std::vector<Tensor> buffers{batch_norm->running_mean, batch_norm->running_var};
    CHECK(
        close(run("batch_norm2d", {}, {x}, weights, {.mode = Mode::evaluation, .key = {}, .buffers = buffers}),
              batch_norm(x)));
  }

  TEST_CASE("multi_head_attention equals its module, with and without a causal mask") {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(12, 3));
    // in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias
    const auto weights = parameters_of(attention);
    torch::NoGradGuard no_grad;
    for (const Tensor& weight : weights) weight.normal_(0, 0.5);
    const Tensor x = torch::randn({2, 5, 12}, torch::kDouble);
    const Tensor sequence_first = x.transpose(0, 1);
    const Tensor mask = torch::full({5, 5}, -INFINITY, torch::kDouble).triu(1);
    for (const bool causal : {false, true}) {
      const Tensor expected = std::get<0>(attention->forward(sequence_first, sequence_first, sequence_first,
                                                             Tensor(), true, causal ? mask : Tensor()));
      const Tensor y = run("multi_head_attention", {{"num_heads", whole(3)}, {"causal", causal}}, {x}, weights);
      CHECK(close(y, expected.transpose(0, 1)));
    }
  }

  TEST_CASE("dropout keeps the share 1-p, scaled by 1/(1-p), and repeats with its key") {
    const Tensor x = torch::ones({200, 100});
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    LayerContext context{
        .key = {.seed = 1, .step = 2, .micro_batch = 3}, .layer = 4, .generator = &generator, .buffers = {}};
    const Tensor y = run("dropout", {{"p", 0.25}}, {x}, {}, context);
    const double kept = y.ne(0).to(torch::kDouble).mean().item<double>();
    CHECK(kept == doctest::Approx(0.75).epsilon(0.02));  // 20,000 draws: standard deviation 0.003
    CHECK(y.max().item<float>() == doctest::Approx(4.0 / 3.0));
    CHECK(run("dropout", {{"p", 0.25}}, {x}, {}, context).equal(y));
    context.layer = 5;
    CHECK_FALSE(run("dropout", {{"p", 0.25}}, {x}, {}, context).equal(y));
    CHECK(run("dropout", {{"p", 0.0}}, {x}).equal(x));
    CHECK(
        run("dropout", {{"p", 0.25}}, {x}, {}, {.mode = Mode::evaluation, .key = {}, .buffers = {}}).equal(x));
  }

  TEST_CASE("masks are the same with one and two threads") {
    const Tensor x = torch::ones({300, 300});
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    const LayerContext context{.key = {.seed = 1}, .layer = 0, .generator = &generator, .buffers = {}};
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const Tensor one = run("dropout", {{"p", 0.5}}, {x}, {}, context);
    at::set_num_threads(2);
    CHECK(run("dropout", {{"p", 0.5}}, {x}, {}, context).equal(one));
    at::set_num_threads(threads);
  }

  TEST_CASE("losses are means over samples and positions") {
    const Tensor logits = torch::randn({2, 3, 5}, torch::kDouble);
    const Tensor labels = torch::randint(0, 5, {2, 3}, torch::kLong);
    const Tensor expected = fn::cross_entropy(logits.view({6, 5}), labels.view({6}));
    CHECK(find_loss_forward("cross_entropy")({}, logits, labels).equal(expected));
    CHECK(find_loss_forward("cross_entropy")({}, logits, labels.to(torch::kByte)).equal(expected));
    const Tensor numbers = torch::randn({2, 3, 5}, torch::kDouble);
    CHECK(find_loss_forward("mse")({}, logits, numbers).equal(fn::mse_loss(logits, numbers)));
  }

  TEST_CASE("each part of a random key changes the seed") {
    const std::uint64_t base = mix({.seed = 1, .step = 2, .micro_batch = 3}, 4);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 3}, 4) == base);
    CHECK(mix({.seed = 2, .step = 2, .micro_batch = 3}, 4) != base);
    CHECK(mix({.seed = 1, .step = 3, .micro_batch = 3}, 4) != base);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 4}, 4) != base);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 3}, 5) != base);
  }
}
