// Forward functions and losses against the torch.nn module of the same name, with the same weights. Attention,
// recurrence and dropout: ops_sequence_test.cpp.
#include <torch/torch.h>

#include <cmath>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
namespace nn = torch::nn;
namespace fn = torch::nn::functional;
using at::Tensor;

namespace {

Tensor images() { return torch::randn({2, 4, 6, 6}, torch::kDouble); }

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
