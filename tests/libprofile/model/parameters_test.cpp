#include "libprofile/model/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "libprofile/model/families/families.h"
#include "libprofile/model/segment.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/support/torch_test.h"

namespace parameters_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// All values in [-bound, bound), close to both ends, with the mean and variance of the uniform distribution.
void check_uniform(const at::Tensor& x, double bound) {
  const double n = static_cast<double>(x.numel());
  CHECK(x.abs().max().item<double>() <= bound * (1 + 1e-6));
  CHECK(x.abs().max().item<double>() > bound * 0.9);
  CHECK(std::abs(x.mean().item<double>()) < 5 * bound / std::sqrt(3 * n));
  CHECK(x.var().item<double>() == doctest::Approx(bound * bound / 3).epsilon(0.1));
}

ResolvedModel wide_model() {
  return GraphBuilder()
      .input("image", {4, 8, 8})
      .layer("conv", "conv2d", {"image"}, {{"out_channels", whole(100)}, {"kernel_size", whole(3)}})
      .layer("norm", "batch_norm2d", {"conv"})
      .layer("flat", "flatten", {"norm"})
      .layer("head", "linear", {"flat"}, {{"out_features", whole(120)}})
      .output("head")
      .build();
}

}  // namespace

TEST_SUITE("libprofile/model/parameters") {
  TEST_CASE("linear and conv2d start uniform within 1/sqrt(fan_in)") {
    const ResolvedModel model = wide_model();
    // conv: 4 channels of 3x3 = 36 inputs; head: 100 channels of 6x6 = 3600.
    check_uniform(initial_parameter(model, 0, 0, 1, DType::float32), 1 / std::sqrt(36.0));
    check_uniform(initial_parameter(model, 0, 1, 1, DType::float32), 1 / std::sqrt(36.0));
    check_uniform(initial_parameter(model, 3, 0, 1, DType::float32), 1 / std::sqrt(3600.0));
    check_uniform(initial_parameter(model, 3, 1, 1, DType::float32), 1 / std::sqrt(3600.0));
  }

  TEST_CASE("matrices of all experts, [in, out] each, and their biases start as linear layers; sinks at 0") {
    Attributes attention{{"num_heads", whole(3)}, {"num_key_value_heads", whole(1)}, {"sinks", true}};
    Attributes experts{{"num_experts", whole(4)}, {"experts_per_token", whole(1)}, {"hidden", whole(100)}};
    experts.emplace("bias", true);
    const auto model = [&] {
      return GraphBuilder()
          .input("x", {6, 40})
          .layer("mix", "grouped_query_attention", {"x"}, attention)
          .layer("up", "linear", {"mix"}, {{"out_features", whole(40)}})
          .layer("experts", "mixture_of_experts", {"up"}, experts)
          .output("experts")
          .build();
    };
    // Router, gate and up of 40 inputs, down of 100; each with its biases.
    for (const int index : {0, 2, 3})
      check_uniform(initial_parameter(model(), 2, index, 1, DType::float32), 1 / std::sqrt(40.0));
    for (const int index : {4, 5})
      check_uniform(initial_parameter(model(), 2, index, 1, DType::float32), 1 / std::sqrt(100.0));
    CHECK(initial_parameter(model(), 0, 0, 1, DType::float32).equal(at::zeros({3})));
    experts.emplace("std", 0.02);
    CHECK(initial_parameter(model(), 2, 4, 1, DType::float32).std().item<double>() ==
          doctest::Approx(0.02).epsilon(0.05));
    // As transformers' GPT-OSS has them, the router's bias and the sinks are drawn too, other biases not.
    attention.emplace("sinks_std", 0.02);
    for (const auto& [layer, index] : {std::pair(2, 1), std::pair(0, 0)}) {
      const at::Tensor drawn = initial_parameter(model(), layer, index, 1, DType::float32).abs();
      CHECK(drawn.min().item<double>() > 0);
      CHECK(drawn.max().item<double>() < 5 * 0.02);
    }
    CHECK(initial_parameter(model(), 2, 3, 1, DType::float32).equal(at::zeros({4, 200})));
  }

  TEST_CASE("norms start as the identity, running statistics at mean 0 and variance 1") {
    const ResolvedModel model = wide_model();
    CHECK(initial_parameter(model, 1, 0, 1, DType::float32).equal(at::ones({100})));
    CHECK(initial_parameter(model, 1, 1, 1, DType::float32).equal(at::zeros({100})));
    CHECK(initial_buffer(model, 1, 0, DType::float32).equal(at::zeros({100})));
    CHECK(initial_buffer(model, 1, 1, DType::float32).equal(at::ones({100})));
  }

  TEST_CASE("embeddings start normal, attention Xavier-uniform with zero biases") {
    const ResolvedModel model =
        GraphBuilder()
            .input("tokens", {6}, DType::int64)
            .layer("embedding", "embedding", {"tokens"},
                   {{"num_embeddings", whole(500)}, {"embedding_dim", whole(32)}})
            .layer("attention", "multi_head_attention", {"embedding"}, {{"num_heads", whole(2)}})
            .output("attention")
            .build();
    const at::Tensor rows = initial_parameter(model, 0, 0, 1, DType::float32);
    CHECK(std::abs(rows.mean().item<double>()) < 5 / std::sqrt(16000.0));
    CHECK(rows.std().item<double>() == doctest::Approx(1.0).epsilon(0.03));
    // in_proj_weight [96, 32]: sqrt(6 / (96 + 32)); out_proj.weight [32, 32]: 1/sqrt(32)
    check_uniform(initial_parameter(model, 1, 0, 1, DType::float32), std::sqrt(6.0 / 128));
    CHECK(initial_parameter(model, 1, 1, 1, DType::float32).equal(at::zeros({96})));
    check_uniform(initial_parameter(model, 1, 2, 1, DType::float32), 1 / std::sqrt(32.0));
    CHECK(initial_parameter(model, 1, 3, 1, DType::float32).equal(at::zeros({32})));
  }

  TEST_CASE("with a standard deviation of their own, weights are normal and biases zero") {
    const ResolvedModel model =
        GraphBuilder()
            .input("tokens", {6}, DType::int64)
            .layer("embedding", "embedding", {"tokens"},
                   {{"num_embeddings", whole(500)}, {"embedding_dim", whole(32)}, {"std", 0.02}})
            .layer("positions", "position_embedding", {"embedding"},
                   {{"num_embeddings", whole(500)}, {"std", 0.1}})
            .layer("head", "linear", {"positions"}, {{"out_features", whole(500)}, {"std", 3.0}})
            .output("head")
            .build();
    for (const auto& [layer, std] : std::map<int, double>{{0, 0.02}, {1, 0.1}, {2, 3.0}}) {
      const at::Tensor weight = initial_parameter(model, layer, 0, 1, DType::float32);
      CHECK(std::abs(weight.mean().item<double>()) < 5 * std / std::sqrt(16000.0));
      CHECK(weight.std().item<double>() == doctest::Approx(std).epsilon(0.03));
    }
    CHECK(initial_parameter(model, 2, 1, 1, DType::float32).equal(at::zeros({500})));
  }

  TEST_CASE("every language family begins near the loss of one who knows nothing, tied and not") {
    const std::map<std::string_view, const char*> sizes{
        {"layers", "2"},  {"width", "128"}, {"heads", "4"},    {"kv_heads", "2"},      {"head_width", "32"},
        {"hidden", "64"}, {"source", "9"},  {"target", "64"},  {"sequence", "64"},     {"positions", "64"},
        {"words", "64"},  {"frames", "4"},  {"features", "8"}, {"vocabulary", "65536"}};
    int tested = 0;
    for (const FamilyRow& row : family_table()) {
      const auto has = [&](std::string_view name) {
        return std::ranges::find(row.arguments, name, &FamilyArgument::name) != row.arguments.end();
      };
      if (!has("vocabulary") || has("classes")) continue;
      std::string spec(row.name);
      for (const FamilyArgument& argument : row.arguments) {
        if (const auto size = sizes.find(argument.name); size != sizes.end())
          spec += (spec.ends_with(row.name) ? ":" : ",") + std::string(argument.name) + "=" + size->second;
      }
      for (const char* tied : {",tied=0", ",tied=1"}) {
        if (!has("tied") && tied == std::string_view(",tied=1")) continue;
        CAPTURE(spec);
        CAPTURE(std::string(tied));
        CHECK(initial_loss(build_family(has("tied") ? spec + tied : spec)) ==
              doctest::Approx(std::log(65536.0)).epsilon(0.05));
        ++tested;
      }
    }
    CHECK(tested >= 36);
  }

  TEST_CASE("an lstm starts uniform within 1/sqrt(hidden_size), additive attention by what it reads") {
    const ResolvedModel model =
        GraphBuilder()
            .input("x", {6, 20})
            .layer("lstm", "lstm", {"x"}, {{"hidden_size", whole(64)}})
            .layer("attention", "additive_attention", {"lstm", "x"}, {{"num_units", whole(100)}})
            .layer("bias", "bias", {"attention"})
            .output("bias")
            .build();
    // weight_ih [256, 20], weight_hh [256, 64], two biases [256]
    for (int i = 0; i < 4; ++i)
      check_uniform(initial_parameter(model, 0, i, 1, DType::float32), 1 / std::sqrt(64.0));
    // linear_q [100, 64], linear_k [100, 20], linear_att [100]
    check_uniform(initial_parameter(model, 1, 0, 1, DType::float32), 1 / std::sqrt(64.0));
    check_uniform(initial_parameter(model, 1, 1, 1, DType::float32), 1 / std::sqrt(20.0));
    CHECK(initial_parameter(model, 1, 2, 1, DType::float32).abs().max().item<double>() <= 0.1);
    CHECK(initial_parameter(model, 1, 3, 1, DType::float32).equal(at::ones({1}).mul(0.1)));
    CHECK(initial_parameter(model, 1, 4, 1, DType::float32).equal(at::zeros({100})));
    CHECK(initial_parameter(model, 2, 0, 1, DType::float32).equal(at::zeros({20})));
  }

  TEST_CASE("the bits depend on seed and name, not on threads or order") {
    const ResolvedModel model = wide_model();
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor one = initial_parameter(model, 3, 0, 1, DType::float32);
    at::set_num_threads(2);
    initial_parameter(model, 0, 0, 1, DType::float32);
    CHECK(initial_parameter(model, 3, 0, 1, DType::float32).equal(one));
    at::set_num_threads(threads);
    CHECK_FALSE(initial_parameter(model, 3, 0, 2, DType::float32).equal(one));
    // Layers of one shape differ by their name.
    const ResolvedModel residual = residual_model();
    const at::Tensor conv1 = initial_parameter(residual, 2, 0, 1, DType::float32);
    const at::Tensor conv2 = initial_parameter(residual, 5, 0, 1, DType::float32);
    REQUIRE(conv1.sizes() == conv2.sizes());
    CHECK_FALSE(conv1.equal(conv2));
  }

  TEST_CASE("drawn together they are what each is alone, of any type and format") {
    const ResolvedModel model = residual_model();
    std::vector<int> all(static_cast<std::size_t>(model.layer_count()));
    std::iota(all.begin(), all.end(), 0);
    const int threads = at::get_num_threads();
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        at::set_num_threads(3);
        const auto together = Segment(model, all, true, {}, format).initial_weights(1, dtype);
        at::set_num_threads(1);
        std::size_t compared = 0;
        for (const int layer : all) {
          const std::vector<at::Tensor>& weights = together->layers[static_cast<std::size_t>(layer)];
          for (std::size_t i = 0; i < weights.size(); ++i, ++compared)
            CHECK(weights[i].equal(initial_parameter(model, layer, static_cast<int>(i), 1, dtype)));
        }
        CHECK(compared > 5);
      }
    }
    at::set_num_threads(threads);
  }

  TEST_CASE("float64 weights are the float32 draw") {
    const ResolvedModel model = wide_model();
    const at::Tensor single = initial_parameter(model, 0, 0, 1, DType::float32);
    CHECK(initial_parameter(model, 0, 0, 1, DType::float64).equal(single.to(at::kDouble)));
  }

  TEST_CASE("shared weights are one leaf in a segment, and start equal in two") {
    const ResolvedModel model = language_model();  // layer 14 has the weights of layer 0
    std::vector<int> all(15);
    for (int i = 0; i < 15; ++i) all[static_cast<std::size_t>(i)] = i;
    const auto together = Segment(model, all, true).initial_weights(1, DType::float32);
    CHECK(together->layers[0][0].is_same(together->layers[14][0]));
    CHECK(together->layers[0][0].is_leaf());
    CHECK(together->layers[0][0].requires_grad());
    const auto apart = Segment(model, {14}, true).initial_weights(1, DType::float32);
    CHECK(apart->layers[0][0].equal(together->layers[0][0]));
  }
}

}  // namespace parameters_test
