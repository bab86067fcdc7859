// Against LibTorch: forward functions and losses against the torch.nn module of the same name, with the same
// weights, optimizers against those of torch.optim. One file, because their headers cost more than all cases.
#include <ATen/CPUGeneratorImpl.h>

#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <functional>

#include "libprofile/model/optimizer.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

namespace against_torch_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
namespace nn = torch::nn;
namespace fn = torch::nn::functional;
using at::Tensor;

namespace {

Tensor images() { return torch::randn({2, 4, 6, 6}, torch::kDouble); }

std::vector<Tensor> random_tensors(at::ScalarType type) {
  return {torch::randn({5, 3}, type), torch::randn({7}, type), torch::randn({2, 3, 4, 4}, type)};
}

constexpr int kSteps = 20;

/// 20 steps of both with the same random gradients; the largest difference of a weight, as a share of the
/// largest weight. ATen's kernels take vector or scalar paths by address, which round differently.
double difference_after_20_steps(
    Optimizer& ours, at::ScalarType type, double learning_rate,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<Tensor>)>& make) {
  std::vector<Tensor> weights = random_tensors(type), reference;
  for (Tensor& weight : weights) {
    reference.push_back(weight.clone().requires_grad_());
    weight.requires_grad_();
  }
  const auto theirs = make(reference);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<Tensor> gradients = random_tensors(type);
    for (std::size_t i = 0; i < weights.size(); ++i) reference[i].mutable_grad() = gradients[i].clone();
    theirs->step();
    ours.step(weights, gradients, learning_rate);
  }
  double largest = 0, scale = 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    CHECK(weights[i].is_leaf());
    largest = std::max(largest, (weights[i] - reference[i]).abs().max().item<double>());
    scale = std::max(scale, reference[i].abs().max().item<double>());
  }
  return largest / scale;
}

}  // namespace

TEST_SUITE("libprofile/model/against_torch") {
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

  TEST_CASE("operations of imported models equal their functions and modules") {
    const Tensor x = images();
    using List = std::vector<std::int64_t>;
    CHECK(run("hardswish", {}, {x.mul(4)}).equal(torch::hardswish(x.mul(4))));
    CHECK(run("hardsigmoid", {}, {x.mul(4)}).equal(torch::hardsigmoid(x.mul(4))));
    CHECK(run("reshape", {{"shape", List{6, -1}}}, {x}).equal(x.reshape({2, 6, -1})));
    CHECK(run("permute", {{"dims", List{2, 0, 1}}}, {x}).equal(x.permute({0, 3, 1, 2})));
    CHECK(run("slice", {{"dim", whole(2)}, {"start", whole(1)}, {"end", whole(4)}, {"step", whole(2)}}, {x})
              .equal(x.slice(3, 1, 4, 2)));
    CHECK(run("add", {}, {x, x.narrow(2, 0, 1)}).equal(x + x.narrow(2, 0, 1)));
    const Tensor y = x.transpose(2, 3).contiguous();
    CHECK(run("matmul", {}, {x, y}).equal(torch::matmul(x, y)));
    const Tensor v = torch::randn({2, 4, x.size(2), 3}, torch::kDouble);
    CHECK(close(run("scaled_dot_product_attention", {}, {x, x, v}), at::scaled_dot_product_attention(x, x, v)));
    CHECK(close(run("scaled_dot_product_attention", {{"causal", true}}, {x, x, v}),
                at::scaled_dot_product_attention(x, x, v, {}, 0.0, true)));

    nn::GroupNorm group(nn::GroupNormOptions(2, 4));
    CHECK(run("group_norm", {{"num_groups", whole(2)}}, {x}, parameters_of(group)).equal(group(x)));
    nn::BatchNorm1d norm(4);
    const Tensor line = x.select(3, 0).contiguous();
    CHECK(run("batch_norm1d", {}, {line}, parameters_of(norm)).equal(norm(line)));
    nn::Conv1d conv(nn::Conv1dOptions(4, 6, 3).stride(2).padding(1).groups(2));
    const Attributes one{{"out_channels", whole(6)},
                         {"kernel_size", whole(3)},
                         {"stride", whole(2)},
                         {"padding", whole(1)},
                         {"groups", whole(2)}};
    CHECK(run("conv1d", one, {line}, parameters_of(conv)).equal(conv(line)));
    nn::ConvTranspose2d grow(
        nn::ConvTranspose2dOptions(4, 6, 3).stride(2).padding(1).output_padding(1).groups(2));
    Attributes two = one;
    two.emplace("output_padding", whole(1));
    CHECK(run("conv_transpose2d", two, {x}, parameters_of(grow)).equal(grow(x)));
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

  TEST_CASE("losses are means over samples and positions") {
    const Tensor logits = torch::randn({2, 3, 5}, torch::kDouble);
    const Tensor labels = torch::randint(0, 5, {2, 3}, torch::kLong);
    const Tensor expected = fn::cross_entropy(logits.view({6, 5}), labels.view({6}));
    CHECK(loss("cross_entropy", logits, labels).equal(expected));
    CHECK(loss("cross_entropy", logits, labels.to(torch::kByte)).equal(expected));
    const Tensor numbers = torch::randn({2, 3, 5}, torch::kDouble);
    CHECK(loss("binary_cross_entropy", logits, numbers)
              .equal(fn::binary_cross_entropy_with_logits(logits, numbers.clamp(0, 1))));
    CHECK(loss("mse", logits, numbers).equal(fn::mse_loss(logits, numbers)));
  }

  TEST_CASE("cross_entropy smooths and ignores labels as PyTorch does, and its written backward too") {
    const Tensor logits = torch::randn({2, 3, 5}, torch::kDouble).requires_grad_();
    const Tensor labels = torch::tensor({{0, 2, 4}, {2, 1, 3}}, torch::kLong);
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      for (const std::int64_t ignored : {-100, 2}) {
        CAPTURE(smoothing);
        CAPTURE(ignored);
        const Attributes given{{"label_smoothing", smoothing}, {"ignore_index", ignored}};
        const auto options = fn::CrossEntropyFuncOptions().label_smoothing(smoothing).ignore_index(ignored);
        const Tensor expected = fn::cross_entropy(logits.view({6, 5}), labels.view({6}), options);
        CHECK(close(loss("cross_entropy", logits, labels, given), expected));

        const Attributes all = complete_attributes(*find_loss("cross_entropy"), given, "/attributes");
        const BoundLayer layer = bind_loss("cross_entropy", all);
        Tensors saved;
        LayerContext context;
        context.saved = &saved;
        layer.forward(Tensors{logits.detach(), labels}, {}, context);
        const Tensor by_loss = torch::full({}, 3.0, torch::kDouble);
        CHECK(close(layer.backward->inputs(saved, {}, by_loss)[0],
                    torch::autograd::grad({expected * 3.0}, {logits})[0]));
      }
    }
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

  TEST_CASE("multi_head_attention with a bias by position: an evaluation equals a training's forward") {
    // The one asks LibTorch for all of it, with the bias as a mask; the other adds, masks and weighs by itself.
    torch::NoGradGuard no_grad;
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(12, 3));
    const auto weights = parameters_of(attention);
    const Tensor x = torch::randn({2, 5, 12}, torch::kDouble), table = torch::randn({2, 8, 3}, torch::kDouble);
    for (const bool causal : {false, true}) {
      const Attributes attributes{{"num_heads", whole(3)}, {"causal", causal}};
      const Tensor trained = run("multi_head_attention", attributes, {x, table}, weights);
      LayerContext context{.mode = Mode::evaluation, .key = {}, .buffers = {}};
      CHECK(close(run("multi_head_attention", attributes, {x, table}, weights, context), trained));
      CHECK_FALSE(close(run("multi_head_attention", attributes, {x}, weights), trained));
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

  TEST_CASE("sgd equals torch.optim.SGD over 20 steps") {
    for (const auto& [momentum, nesterov, decay] :
         {std::tuple{0., 0., 0.}, {0.9, 0., 0.}, {0.9, 0., 0.01}, {0.9, 1., 0.}}) {
      const double own_momentum = momentum, own_decay = decay, own_nesterov = nesterov;
      CAPTURE(own_momentum);
      for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
        Optimizer ours(OptimizerName::sgd, {{"momentum", own_momentum}, {"nesterov", own_nesterov}}, own_decay);
        const double difference =
            difference_after_20_steps(ours, type, 0.1, [&](std::vector<Tensor> parameters) {
              return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                         torch::optim::SGDOptions(0.1)
                                                             .momentum(own_momentum)
                                                             .weight_decay(own_decay)
                                                             .nesterov(own_nesterov != 0));
            });
        // One unit in the last place of the largest weight a step: 2^-23 in float32, 2^-52 in float64.
        CHECK(difference <= kSteps * (type == torch::kFloat ? 0x1p-23 : 0x1p-52));
      }
    }
  }

  TEST_CASE("adamw equals torch.optim.AdamW over 20 steps") {
    for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
      Optimizer ours(OptimizerName::adamw, {{"beta1", 0.8}, {"beta2", 0.99}, {"epsilon", 1e-7}}, 0.05);
      const double difference =
          difference_after_20_steps(ours, type, 0.01, [&](std::vector<Tensor> parameters) {
            return std::make_unique<torch::optim::AdamW>(
                std::move(parameters),
                torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).eps(1e-7).weight_decay(0.05));
          });
      CHECK(difference <= (type == torch::kFloat ? 1e-5 : 1e-14));
    }
  }
}

}  // namespace against_torch_test
