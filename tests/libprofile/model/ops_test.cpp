// Forward functions, losses and random keys by hand. Those that torch.nn has too: against_torch_test.cpp.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

namespace ops_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
using at::Tensor;

TEST_SUITE("libprofile/model/ops") {
  TEST_CASE("text_detection: balanced score, overlap and angle by hand") {
    const Attributes weights{{"geometry_weight", 1.0}, {"angle_weight", 10.0}};
    // Two pixels. The first has text: score 0.8, box 4x4 against a wanted 2x4, angle off by 0.5. The second has
    // none and score 0.1; its box does not count.
    const Tensor wanted =
        at::tensor({1., 0., 1., 0., 2., 0., 1., 0., 2., 0., 0., 0.}, at::kDouble).view({1, 6, 1, 2});
    const Tensor found =
        at::tensor({.8, .1, 2., 9., 2., 9., 2., 9., 2., 9., .5, 9.}, at::kDouble).view({1, 6, 1, 2});
    // Half of the pixels have text: beta = 1/2.
    const double score = -0.5 * (std::log(0.8) + std::log(0.9)) / 2;
    // Areas (2+2)(2+2) = 16 and (1+1)(2+2) = 8; the smaller box lies inside.
    const double geometry = -std::log((8.0 + 1) / (16.0 + 1)) + 10 * (1 - std::cos(0.5));
    CHECK(loss("text_detection", found, wanted, weights).item<double>() == doctest::Approx(score + geometry));
    // The mean over samples, whatever their text.
    const Tensor nothing = at::zeros({1, 6, 1, 2}, at::kDouble);
    const Tensor both = loss("text_detection", at::cat({found, nothing}), at::cat({wanted, nothing}), weights);
    CHECK(both.item<double>() == doctest::Approx((score + geometry) / 2).epsilon(1e-5));
  }

  // What PyTorch's autocast and transformers do: float32 of the logits, and of the gradient what a half type
  // holds.
  TEST_CASE("losses of half types are those of float32, their gradients rounded once") {
    at::manual_seed(7);
    const Tensor images = at::randn({2, 6, 3, 3}), distances = images.abs();
    const std::vector<std::tuple<std::string, Tensor, Tensor>> cases{
        {"cross_entropy", at::randn({4, 30000}) * 2, at::randint(30000, {4}, at::kLong)},
        {"cross_entropy", images, at::randint(6, {2, 3, 3}, at::kLong)},
        {"binary_cross_entropy", at::randn({8, 50}) * 4, at::rand({8, 50})},
        {"mse", at::randn({8, 50}) * 9, at::randn({8, 50})},
        {"text_detection", distances.sigmoid(), distances}};
    for (const auto& [name, prediction, target] : cases) {
      CAPTURE(name);
      for (const bool autocast : {false, true}) {
        CAPTURE(autocast);
        const Attributes attributes = complete_attributes(*find_loss(name), {}, "/attributes");
        const BoundLayer layer = bind_loss(name, attributes);
        const auto taken = [&](at::ScalarType type) {
          const Tensor x = prediction.to(at::kBFloat16).to(type).requires_grad_();
          const Tensor y = target.is_floating_point() ? target.to(at::kBFloat16).to(type) : target;
          const bool casts = autocast && type == at::kBFloat16;
          at::autocast::set_autocast_enabled(at::kCPU, casts);
          Tensors saved;
          LayerContext context;
          const Tensor loss = layer.forward(Tensors{x, y}, {}, context)[0];
          at::autocast::set_autocast_enabled(at::kCPU, false);
          loss.backward();
          if (layer.backward && !autocast) {
            context.saved = &saved;
            layer.forward(Tensors{x.detach(), y}, {}, context);
            const Tensor by_hand = layer.backward->inputs(saved, {}, at::ones({}, loss.options()))[0];
            CHECK((by_hand.scalar_type() == type));
            CHECK(by_hand.to(at::kFloat).allclose(x.grad().to(at::kFloat), 1e-2, 1e-9));
          }
          return std::pair(loss.detach(), x.grad());
        };
        const auto [narrow, by_narrow] = taken(at::kBFloat16);
        const auto [wide, by_wide] = taken(at::kFloat);
        CHECK((narrow.scalar_type() == at::kFloat));
        CHECK(narrow.equal(wide));
        CHECK(by_narrow.equal(by_wide.to(at::kBFloat16)));
      }
    }
  }

  TEST_CASE("each part of a random key changes the seed") {
    const std::uint64_t base = mix({.seed = 1, .step = 2, .micro_batch = 3}, 4);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 3}, 4) == base);
    CHECK(mix({.seed = 2, .step = 2, .micro_batch = 3}, 4) != base);
    CHECK(mix({.seed = 1, .step = 3, .micro_batch = 3}, 4) != base);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 4}, 4) != base);
    CHECK(mix({.seed = 1, .step = 2, .micro_batch = 3}, 5) != base);
  }

  TEST_CASE("additive_attention weighs keys by a perceptron of query and key") {
    const Tensor query = at::randn({1, 1, 2}, at::kDouble), keys = at::randn({1, 3, 4}, at::kDouble);
    const std::vector<Tensor> weights{at::randn({5, 2}, at::kDouble), at::randn({5, 4}, at::kDouble),
                                      at::randn({5}, at::kDouble), at::full({1}, 0.7, at::kDouble),
                                      at::randn({5}, at::kDouble)};
    const Tensor vector = weights[2] / weights[2].norm() * 0.7;
    std::vector<Tensor> scores;
    for (std::int64_t k = 0; k < 3; ++k) {
      const Tensor hidden = weights[0].mv(query[0][0]) + weights[1].mv(keys[0][k]) + weights[4];
      scores.push_back(vector.dot(hidden.tanh()));
    }
    const Tensor expected = at::softmax(at::stack(scores), 0).matmul(keys[0]);
    CHECK(close(run("additive_attention", {{"num_units", whole(5)}}, {query, keys}, weights)[0][0], expected));
  }

  TEST_CASE("position_encoding adds sines and cosines of falling frequency") {
    const Tensor y = run("position_encoding", {}, {at::zeros({1, 3, 4}, at::kDouble)});
    // Width 4: angles p and p / 10000^(2/4) = p / 100.
    for (int p = 0; p < 3; ++p) {
      const double near = p, far = p / 100.0;
      const Tensor expected =
          at::tensor({std::sin(near), std::cos(near), std::sin(far), std::cos(far)}, at::kDouble);
      CHECK(close(y[0][p], expected));
    }
  }

  TEST_CASE("a bias by relative position is added to every pair of positions in its bucket") {
    // Width 1, one head, no scores: query and key are 0, so the shares are the softmax of the biases alone.
    const Tensor table = at::tensor({0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}, at::kDouble).view({1, 8, 1});
    const std::vector<Tensor> weights{at::tensor({0.0, 0.0, 1.0}, at::kDouble).view({3, 1}),
                                      at::ones({1, 1}, at::kDouble)};
    const Tensor x = at::tensor({1.0, 10.0}, at::kDouble).view({1, 2, 1});
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
      const Tensor share = kept.ne(0).to(at::kDouble).mean(shared);
      return share.eq(0).logical_or(share.eq(1)).all().item<bool>() && share.mean().item<double>() > 0.5;
    };
    const Tensor channels = run("dropout2d", {{"p", 0.25}}, {at::ones({20, 30, 3, 3})}, {}, context);
    CHECK(all_or_nothing(channels, {2, 3}));
    const Tensor features = run("locked_dropout", {{"p", 0.25}}, {at::ones({20, 5, 30})}, {}, context);
    CHECK(all_or_nothing(features, {1}));
    const Tensor samples = run("stochastic_depth", {{"p", 0.25}}, {at::ones({60, 5, 3})}, {}, context);
    CHECK(all_or_nothing(samples, {1, 2}));
    CHECK(samples.max().item<float>() == doctest::Approx(4.0 / 3.0));
    const Attributes words{{"num_embeddings", whole(50)}, {"embedding_dim", whole(4)}, {"dropout", 0.25}};
    const Tensor tokens = at::arange(50, at::kLong).view({1, 50});
    const Tensor rows = run("embedding", words, {tokens}, {at::ones({50, 4})}, context);
    CHECK(all_or_nothing(rows, {0, 2}));
    CHECK(rows.max().item<float>() == doctest::Approx(4.0 / 3.0));
  }

  TEST_CASE("dropout keeps the share 1-p, scaled by 1/(1-p), and repeats with its key") {
    const Tensor x = at::ones({200, 100});
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    LayerContext context{
        .key = {.seed = 1, .step = 2, .micro_batch = 3}, .layer = 4, .generator = &generator, .buffers = {}};
    const Tensor y = run("dropout", {{"p", 0.25}}, {x}, {}, context);
    const double kept = y.ne(0).to(at::kDouble).mean().item<double>();
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
    const Tensor x = at::ones({300, 300});
    auto generator = at::make_generator<at::CPUGeneratorImpl>();
    const LayerContext context{.key = {.seed = 1}, .layer = 0, .generator = &generator, .buffers = {}};
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const Tensor one = run("dropout", {{"p", 0.5}}, {x}, {}, context);
    at::set_num_threads(2);
    CHECK(run("dropout", {{"p", 0.5}}, {x}, {}, context).equal(one));
    at::set_num_threads(threads);
  }
}

}  // namespace ops_test
