// Deferred running statistics of batch norm against those of LibTorch's batch_norm of the whole mini-batch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "libprofile/model/segment.h"
#include "tests/libprofile/model/graph_builder.h"
#include "tests/support/torch_test.h"

namespace statistics_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

ResolvedModel norm_model(double momentum) {
  return GraphBuilder()
      .input("x", {3, 4, 5})
      .layer("norm", "batch_norm2d", {"x"}, {{"momentum", momentum}})
      .output("norm")
      .build();
}

/// Of the micro-batches x[0..4), x[4..5), x[5..8).
std::vector<BatchStatistics> statistics_of(const ResolvedModel& model, const at::Tensor& x) {
  const Segment segment(model, {0}, false);
  const auto weights = segment.initial_weights(1, DType::float32);
  std::vector<BatchStatistics> statistics;
  std::int64_t start = 0;
  for (const std::int64_t size : {4, 1, 3}) {
    const Pass pass =
        segment.forward(weights, std::vector{x.narrow(0, start, size)}, {.key = {}, .buffers = {}});
    statistics.insert(statistics.end(), pass.statistics.begin(), pass.statistics.end());
    start += size;
  }
  return statistics;
}

void commit(std::span<const BatchStatistics> in_order, const BatchNorm& norm, std::span<at::Tensor> buffers) {
  commit_statistics(std::vector<NormStatistics>{{in_order, norm, buffers}});
}

}  // namespace

TEST_SUITE("libprofile/model/statistics") {
  TEST_CASE("each micro-batch's are those of its values") {
    const ResolvedModel model = norm_model(0.1);
    const at::Tensor x = at::randn({8, 3, 4, 5});
    const std::vector<BatchStatistics> parts = statistics_of(model, x);
    REQUIRE(parts.size() == 3);
    const std::int64_t counts[] = {4 * 20, 1 * 20, 3 * 20};
    std::int64_t start = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(parts[i].layer == 0);
      CHECK(parts[i].count == counts[i]);
      const at::Tensor values = x.narrow(0, start, counts[i] / 20);
      CHECK(parts[i].mean.allclose(values.mean({0, 2, 3}), 1e-5, 1e-6));
      const at::Tensor variance = values.var({0, 2, 3}, /*unbiased=*/false);
      CHECK(parts[i].inverse_deviation.allclose(variance.add(1e-5).rsqrt(), 1e-5, 1e-6));
      start += counts[i] / 20;
    }
  }

  TEST_CASE("unequal micro-batches commit what one full batch would") {
    for (const double momentum : {0.1, 1.0}) {
      const ResolvedModel model = norm_model(momentum);
      std::vector<at::Tensor> buffers = Segment(model, {0}, false).initial_buffers(DType::float32)[0];
      const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
      for (int step = 0; step < 3; ++step) {
        // Far from zero and unlike in its parts, so that rounding and the parts' weights would show.
        const at::Tensor x = at::randn({8, 3, 4, 5}) * 3 + at::arange(8).view({8, 1, 1, 1}) + 10;
        at::batch_norm(x, {}, {}, mean, variance, true, momentum, 1e-5, false);
        commit(statistics_of(model, x), batch_norms(model, 0).front(), buffers);
        CHECK(buffers[0].allclose(mean, 1e-5, 0));
        CHECK(buffers[1].allclose(variance, 1e-5, 0));
      }
    }
  }

  TEST_CASE("the variance is unbiased") {
    // Two samples of two values: 0, 0 and 2, 2 in channel 0: mean 1, sum of squared differences 4, 4/(4-1)
    // = 1.3333. Neither has a variance of its own, so with eps 0.25 the inverse deviation is 2.
    const BatchStatistics a{.layer = 0,
                            .count = 2,
                            .mean = at::zeros({1}, at::kDouble),
                            .inverse_deviation = at::full({1}, 2.0, at::kDouble)};
    BatchStatistics b = a;
    b.mean = at::full({1}, 2.0, at::kDouble);
    std::vector<at::Tensor> buffers{at::zeros({1}), at::ones({1})};
    commit(std::vector{a, b}, {.momentum = 1.0, .eps = 0.25}, buffers);
    CHECK(buffers[0].item<float>() == 1.0f);
    CHECK(buffers[1].item<float>() == doctest::Approx(4.0 / 3.0));
  }

  // bfloat16 statistics go the way of those on a GPU, where norms are computed together: one with other shares
  // of the micro-batches, and one with another momentum, stand between two that are alike.
  TEST_CASE("norms that are computed together have what each has alone") {
    struct Norm {
      std::int64_t channels, first, second;  ///< values of the two micro-batches
      double momentum;
    };
    const auto random = [](std::int64_t channels) {
      return at::randn({channels}).sigmoid().add(0.5).to(at::kBFloat16);
    };
    std::vector<std::vector<BatchStatistics>> parts;
    std::vector<BatchNorm> norms;
    std::vector<std::vector<at::Tensor>> alone, together;
    for (const auto& [channels, first, second, momentum] :
         {Norm{3, 8, 4, 0.1}, Norm{2, 8, 8, 0.1}, Norm{5, 16, 8, 0.3}, Norm{4, 16, 8, 0.1}}) {
      std::vector<BatchStatistics>& own = parts.emplace_back(2);
      for (BatchStatistics& part : own) {
        part.mean = random(channels);
        part.inverse_deviation = random(channels);
      }
      own[0].count = first;
      own[1].count = second;
      norms.push_back({.momentum = momentum, .eps = 1e-3});
      alone.push_back({at::zeros({channels}), at::ones({channels})});
      together.push_back({at::zeros({channels}), at::ones({channels})});
    }
    std::vector<NormStatistics> all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      commit(parts[i], norms[i], alone[i]);
      all.push_back({parts[i], norms[i], together[i]});
    }
    commit_statistics(all);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      for (std::size_t b = 0; b < 2; ++b) CHECK(together[i][b].equal(alone[i][b]));
      // By hand: the mean of the means, weighed by counts.
      const double n = static_cast<double>(parts[i][0].count + parts[i][1].count);
      const at::Tensor mean = parts[i][0].mean.to(at::kDouble) * (static_cast<double>(parts[i][0].count) / n) +
                              parts[i][1].mean.to(at::kDouble) * (static_cast<double>(parts[i][1].count) / n);
      CHECK(together[i][0].allclose((mean * norms[i].momentum).to(at::kFloat), 1e-5, 1e-7));
    }
  }

  TEST_CASE("nothing is committed without micro-batches") {
    std::vector<at::Tensor> buffers{at::zeros({1}), at::ones({1})};
    commit({}, {.momentum = 0.5}, buffers);
    CHECK(buffers[1].item<float>() == 1.0f);
  }
}

}  // namespace statistics_test
