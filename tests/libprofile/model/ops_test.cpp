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
    CHECK(run("gelu", {{"tanh", true}}, {x}).equal(fn::gelu(x, fn::GELUFuncOptions().approximate("tanh"))));
    CHECK(run("tanh", {}, {x}).equal(torch::tanh(x)));
    CHECK(run("relu6", {}, {x.mul(5)}).equal(fn::relu6(x.mul(5))));
    CHECK(run("leaky_relu", {{"negative_slope", 0.2}}, {x})
              .equal(fn::leaky_relu(x, fn::LeakyReLUFuncOptions().negative_slope(0.2))));
    CHECK(run("sigmoid", {}, {x}).equal(torch::sigmoid(x)));
    CHECK(run("silu", {}, {x}).equal(fn::silu(x)));
    CHECK(run("scale", {{"factor", 2.0}, {"offset", -1.0}}, {x}).equal(x * 2 - 1));
    CHECK(run("bias", {}, {x}, {torch::arange(6, torch::kDouble)}).equal(x + torch::arange(6, torch::kDouble)));
    CHECK(run("softmax", {}, {x}).equal(fn::softmax(x, -1)));
    CHECK(run("flatten", {}, {x}).equal(x.flatten(1)));
    CHECK(run("add", {}, {x, x, x}).equal(x + x + x));
    CHECK(run("multiply", {}, {x, x, x}).equal(x * x * x));
    CHECK(run("mean", {{"dim", whole(1)}}, {x}).equal(x.mean(2)));
    CHECK(run("concat", {}, {x, x.mul(2)}).equal(torch::cat({x, x.mul(2)}, 1)));
    CHECK(run("concat", {{"dim", whole(2)}}, {x, x.mul(2)}).equal(torch::cat({x, x.mul(2)}, 3)));
    CHECK(run("pad", {{"dim", whole(1)}, {"before", whole(2)}, {"after", whole(-1)}}, {x})
              .equal(fn::pad(x, fn::PadFuncOptions({0, 0, 2, -1}))));
    CHECK(run("adaptive_avg_pool2d", {{"output_size", whole(3)}}, {x})
              .equal(fn::adaptive_avg_pool2d(x, fn::AdaptiveAvgPool2dFuncOptions(3))));
    const Attributes window{{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}};
    CHECK(run("max_pool2d", window, {x})
              .equal(fn::max_pool2d(x, fn::MaxPool2dFuncOptions(3).stride(2).padding(1))));
    CHECK(run("avg_pool2d", window, {x})
              .equal(fn::avg_pool2d(x, fn::AvgPool2dFuncOptions(3).stride(2).padding(1))));
  }

  TEST_CASE("upsampling equals its functions") {
    const Tensor x = images();
    CHECK(run("upsample_nearest2d", {}, {x})
              .equal(fn::interpolate(x, fn::InterpolateFuncOptions().scale_factor(std::vector{2.0, 2.0}))));
    for (const bool align : {false, true}) {
      const auto options = fn::InterpolateFuncOptions()
                               .scale_factor(std::vector{3.0, 3.0})
                               .mode(torch::kBilinear)
                               .align_corners(align);
      CHECK(close(run("upsample_bilinear2d", {{"scale_factor", whole(3)}, {"align_corners", align}}, {x}),
                  fn::interpolate(x, options)));
    }
  }

  TEST_CASE("pools keep hanging windows in ceil mode and may leave padding out of the mean") {
    const Tensor x = images();
    const Attributes window{{"kernel_size", whole(3)}, {"stride", whole(2)}, {"ceil_mode", true}};
    CHECK(run("max_pool2d", window, {x})
              .equal(fn::max_pool2d(x, fn::MaxPool2dFuncOptions(3).stride(2).ceil_mode(true))));
    CHECK(
        run("avg_pool2d", {{"kernel_size", whole(3)}, {"padding", whole(1)}, {"count_include_pad", false}}, {x})
            .equal(fn::avg_pool2d(x, fn::AvgPool2dFuncOptions(3).padding(1).count_include_pad(false))));
  }

  TEST_CASE("conv2d with groups and with kernels that are not square equals its module") {
    nn::Conv2d conv(nn::Conv2dOptions(4, 6, {1, 3}).padding({0, 1}).groups(2).bias(false));
    const auto filters = parameters_of(conv);
    const Attributes attributes{{"out_channels", whole(6)}, {"kernel_size", whole(1)},
                                {"kernel_width", whole(3)}, {"padding_width", whole(1)},
                                {"groups", whole(2)},       {"bias", false}};
    const Tensor x = images();
    CHECK(run("conv2d", attributes, {x}, filters).equal(conv(x)));
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

  TEST_CASE("local_response_norm, instance_norm2d and rms_norm equal their functions") {
    const Tensor x = images();
    for (const std::int64_t size : {2, 3}) {
      const auto options = fn::LocalResponseNormFuncOptions(size).alpha(0.1).beta(0.6).k(2);
      const Attributes attributes{{"size", whole(size)}, {"alpha", 0.1}, {"beta", 0.6}, {"k", 2.0}};
      CHECK(close(run("local_response_norm", attributes, {x}), fn::local_response_norm(x, options)));
    }
    CHECK(close(run("instance_norm2d", {}, {x}), fn::instance_norm(x)));
    const Tensor weight = torch::randn({6}, torch::kDouble);
    const Tensor root = x.square().mean(-1, true).add(1e-6).sqrt();
    CHECK(close(run("rms_norm", {}, {x}, {weight}), x / root * weight));
  }

  TEST_CASE("lstm equals its module") {
    for (const bool both : {false, true}) {
      nn::LSTM lstm(nn::LSTMOptions(5, 3).num_layers(2).bidirectional(both).batch_first(true));
      const auto weights = parameters_of(lstm);
      const Tensor x = torch::randn({2, 4, 5}, torch::kDouble);
      const Attributes attributes{{"hidden_size", whole(3)}, {"num_layers", whole(2)}, {"bidirectional", both}};
      CHECK(close(run("lstm", attributes, {x}, weights), std::get<0>(lstm(x))));
    }
  }

  TEST_CASE("weight dropout takes hidden-to-hidden weights, in training only") {
    nn::LSTM lstm(nn::LSTMOptions(5, 30).batch_first(true));
    std::vector<Tensor> weights = parameters_of(lstm);
    const Tensor x = torch::randn({2, 4, 5}, torch::kDouble);
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    LayerContext context{.key = {.seed = 1}, .layer = 4, .generator = &generator, .buffers = {}};
    const Attributes attributes{{"hidden_size", whole(30)}, {"weight_dropout", 0.5}};
    const Tensor y = run("lstm", attributes, {x}, weights, context);
    const Tensor whole_weights = std::get<0>(lstm(x));
    // The first position has no hidden state to weigh.
    CHECK(close(y.select(1, 0), whole_weights.select(1, 0)));
    CHECK_FALSE(close(y, whole_weights));
    CHECK(run("lstm", attributes, {x}, weights, context).equal(y));
    context.mode = Mode::evaluation;
    CHECK(close(run("lstm", attributes, {x}, weights, context), whole_weights));
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

  TEST_CASE("cross_attention equals its module") {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(12, 3));
    const auto weights = parameters_of(attention);
    torch::NoGradGuard no_grad;
    for (const Tensor& weight : weights) weight.normal_(0, 0.5);
    const Tensor x = torch::randn({2, 5, 12}, torch::kDouble),
                 memory = torch::randn({2, 7, 12}, torch::kDouble);
    const Tensor keys = memory.transpose(0, 1);
    const Tensor expected = std::get<0>(attention->forward(x.transpose(0, 1), keys, keys));
    CHECK(close(run("cross_attention", {{"num_heads", whole(3)}}, {x, memory}, weights),
                expected.transpose(0, 1)));
  }

  TEST_CASE("additive_attention weighs keys by a perceptron of query and key") {
    const Tensor query = torch::randn({1, 1, 2}, torch::kDouble),
                 keys = torch::randn({1, 3, 4}, torch::kDouble);
    const std::vector<Tensor> weights{torch::randn({5, 2}, torch::kDouble),
                                      torch::randn({5, 4}, torch::kDouble), torch::randn({5}, torch::kDouble),
                                      torch::full({1}, 0.7, torch::kDouble), torch::randn({5}, torch::kDouble)};
    const Tensor vector = weights[2] / weights[2].norm() * 0.7;
    std::vector<Tensor> scores;
    for (std::int64_t k = 0; k < 3; ++k) {
      const Tensor hidden = weights[0].mv(query[0][0]) + weights[1].mv(keys[0][k]) + weights[4];
      scores.push_back(vector.dot(hidden.tanh()));
    }
    const Tensor expected = torch::softmax(torch::stack(scores), 0).matmul(keys[0]);
    CHECK(close(run("additive_attention", {{"num_units", whole(5)}}, {query, keys}, weights)[0][0], expected));
  }

  TEST_CASE("position_encoding adds sines and cosines of falling frequency") {
    const Tensor y = run("position_encoding", {}, {torch::zeros({1, 3, 4}, torch::kDouble)});
    // Width 4: angles p and p / 10000^(2/4) = p / 100.
    for (int p = 0; p < 3; ++p) {
      const double near = p, far = p / 100.0;
      const Tensor expected =
          torch::tensor({std::sin(near), std::cos(near), std::sin(far), std::cos(far)}, torch::kDouble);
      CHECK(close(y[0][p], expected));
    }
  }

  TEST_CASE("a bias by relative position is added to every pair of positions in its bucket") {
    // Width 1, one head, no scores: query and key are 0, so the shares are the softmax of the biases alone.
    const Tensor table =
        torch::tensor({0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}, torch::kDouble).view({1, 8, 1});
    const std::vector<Tensor> weights{torch::tensor({0.0, 0.0, 1.0}, torch::kDouble).view({3, 1}),
                                      torch::ones({1, 1}, torch::kDouble)};
    const Tensor x = torch::tensor({1.0, 10.0}, torch::kDouble).view({1, 2, 1});
    const Attributes both{{"num_heads", whole(1)}, {"bias", false}};
    // Eight buckets for both sides: distance 0 in bucket 0, one back in 1, one ahead in 4 + 1.
    const Tensor seen = run("multi_head_attention", both, {x, table}, weights).flatten();
    CHECK(seen[0].item<double>() == doctest::Approx((1 + 10 * std::exp(5)) / (1 + std::exp(5))));
    CHECK(seen[1].item<double>() == doctest::Approx((std::exp(1) + 10) / (std::exp(1) + 1)));
    // Eight buckets for earlier positions only; the first position sees itself.
    const Attributes causal{{"num_heads", whole(1)}, {"bias", false}, {"causal", true}};
    const Tensor back = run("multi_head_attention", causal, {x, table}, weights).flatten();
    CHECK(back[0].item<double>() == doctest::Approx(1));
    CHECK(back[1].item<double>() == doctest::Approx((std::exp(1) + 10) / (std::exp(1) + 1)));
  }

  TEST_CASE("dropout of channels, of features and of words takes whole ones") {
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    const LayerContext context{.key = {.seed = 2}, .layer = 4, .generator = &generator, .buffers = {}};
    const auto all_or_nothing = [](const Tensor& kept, at::IntArrayRef shared) {
      const Tensor share = kept.ne(0).to(torch::kDouble).mean(shared);
      return share.eq(0).logical_or(share.eq(1)).all().item<bool>() && share.mean().item<double>() > 0.5;
    };
    const Tensor channels = run("dropout2d", {{"p", 0.25}}, {torch::ones({20, 30, 3, 3})}, {}, context);
    CHECK(all_or_nothing(channels, {2, 3}));
    const Tensor features = run("locked_dropout", {{"p", 0.25}}, {torch::ones({20, 5, 30})}, {}, context);
    CHECK(all_or_nothing(features, {1}));
    const Attributes words{{"num_embeddings", whole(50)}, {"embedding_dim", whole(4)}, {"dropout", 0.25}};
    const Tensor tokens = torch::arange(50, torch::kLong).view({1, 50});
    const Tensor rows = run("embedding", words, {tokens}, {torch::ones({50, 4})}, context);
    CHECK(all_or_nothing(rows, {0, 2}));
    CHECK(rows.max().item<float>() == doctest::Approx(4.0 / 3.0));
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
    CHECK(find_loss_forward("binary_cross_entropy")({}, logits, numbers)
              .equal(fn::binary_cross_entropy_with_logits(logits, numbers.clamp(0, 1))));
    CHECK(find_loss_forward("mse")({}, logits, numbers).equal(fn::mse_loss(logits, numbers)));
  }

  TEST_CASE("text_detection: balanced score, overlap and angle by hand") {
    const Attributes weights{{"geometry_weight", 1.0}, {"angle_weight", 10.0}};
    // Two pixels. The first has text: score 0.8, box 4x4 against a wanted 2x4, angle off by 0.5. The second has
    // none and score 0.1; its box does not count.
    const Tensor wanted =
        torch::tensor({1., 0., 1., 0., 2., 0., 1., 0., 2., 0., 0., 0.}, torch::kDouble).view({1, 6, 1, 2});
    const Tensor found =
        torch::tensor({.8, .1, 2., 9., 2., 9., 2., 9., 2., 9., .5, 9.}, torch::kDouble).view({1, 6, 1, 2});
    // Half of the pixels have text: beta = 1/2.
    const double score = -0.5 * (std::log(0.8) + std::log(0.9)) / 2;
    // Areas (2+2)(2+2) = 16 and (1+1)(2+2) = 8; the smaller box lies inside.
    const double geometry = -std::log((8.0 + 1) / (16.0 + 1)) + 10 * (1 - std::cos(0.5));
    CHECK(find_loss_forward("text_detection")(weights, found, wanted).item<double>() ==
          doctest::Approx(score + geometry));
    // The mean over samples, whatever their text.
    const Tensor nothing = torch::zeros({1, 6, 1, 2}, torch::kDouble);
    const Tensor both = find_loss_forward("text_detection")(weights, torch::cat({found, nothing}),
                                                            torch::cat({wanted, nothing}));
    CHECK(both.item<double>() == doctest::Approx((score + geometry) / 2).epsilon(1e-5));
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
