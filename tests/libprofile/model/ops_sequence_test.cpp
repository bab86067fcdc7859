// Attention, recurrence, positions and dropout against the torch.nn module of the same name, or by hand.
#include <ATen/CPUGeneratorImpl.h>

#include <torch/torch.h>

#include <cmath>

#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;
namespace nn = torch::nn;
using at::Tensor;

TEST_SUITE("libprofile/model/ops_sequence") {
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
}
