#include "libprofile/model/optimizer.h"

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <functional>

#include "libprofile/core/error.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using at::Tensor;

namespace {

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

TEST_SUITE("libprofile/model/optimizer") {
  TEST_CASE("sgd equals torch.optim.SGD over 20 steps") {
    const std::vector<SgdOptions> settings{{},
                                           {.momentum = 0.9},
                                           {.momentum = 0.9, .weight_decay = 0.01},
                                           {.momentum = 0.5, .weight_decay = 0.1, .dampening = 0.2},
                                           {.momentum = 0.9, .nesterov = true}};
    for (const SgdOptions& s : settings) {
      CAPTURE(s.momentum);
      CAPTURE(s.dampening);
      for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
        const auto ours = make_sgd(s);
        const double difference =
            difference_after_20_steps(*ours, type, 0.1, [&](std::vector<Tensor> parameters) {
              return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                         torch::optim::SGDOptions(0.1)
                                                             .momentum(s.momentum)
                                                             .weight_decay(s.weight_decay)
                                                             .dampening(s.dampening)
                                                             .nesterov(s.nesterov));
            });
        // One unit in the last place of the largest weight a step: 2^-23 in float32, 2^-52 in float64.
        CHECK(difference <= kSteps * (type == torch::kFloat ? 0x1p-23 : 0x1p-52));
      }
    }
  }

  TEST_CASE("adamw equals torch.optim.AdamW over 20 steps") {
    const AdamWOptions s{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-7, .weight_decay = 0.05};
    for (const at::ScalarType type : {torch::kFloat, torch::kDouble}) {
      const auto ours = make_adamw(s);
      const double difference =
          difference_after_20_steps(*ours, type, 0.01, [&](std::vector<Tensor> parameters) {
            return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                                         torch::optim::AdamWOptions(0.01)
                                                             .betas({s.beta1, s.beta2})
                                                             .eps(s.epsilon)
                                                             .weight_decay(s.weight_decay));
          });
      CHECK(difference <= (type == torch::kFloat ? 1e-5 : 1e-14));
    }
  }

  TEST_CASE("the learning rate is that of the step") {
    // w = 1, gradient 1: 1 - 0.5 - 0.25
    const auto sgd = make_sgd({});
    const std::vector<Tensor> weights{torch::ones({1})}, gradients{torch::ones({1})};
    sgd->step(weights, gradients, 0.5);
    sgd->step(weights, gradients, 0.25);
    CHECK(weights[0].item<float>() == 0.25f);
  }

  TEST_CASE("the state is as large as state_ratio says") {
    const std::vector<Tensor> weights{torch::ones({6})}, gradients{torch::ones({6})};
    CHECK(make_sgd({})->state_ratio() == 0.0);
    const auto momentum = make_sgd({.momentum = 0.9});
    const auto adamw = make_adamw({});
    CHECK(momentum->state_ratio() == 1.0);
    CHECK(adamw->state_ratio() == 2.0);
    CHECK(momentum->state().empty());
    CHECK(adamw->state().empty());
    momentum->step(weights, gradients, 0.1);
    adamw->step(weights, gradients, 0.1);
    REQUIRE(momentum->state().size() == 1);
    CHECK(momentum->state()[0].equal(gradients[0]));  // the first step takes the gradient as it is
    REQUIRE(adamw->state().size() == 3);
    CHECK(adamw->state()[0].sizes() == weights[0].sizes());
    CHECK(adamw->state()[2].item<float>() == 1.0f);
  }

  TEST_CASE("a gradient of another layout, dtype or count is refused") {
    const auto sgd = make_sgd({});
    const std::vector<Tensor> weights{torch::ones({2, 3})};
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{torch::ones({3, 2}).t()}, 0.1),
                         "optimizer: weight 0 and its gradient differ in shape or strides", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{torch::ones({2, 3}, torch::kDouble)}, 0.1),
                         "optimizer: weight 0 and its gradient differ in dtype", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{Tensor()}, 0.1), "optimizer: weight 0 has no gradient",
                         Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, {}, 0.1), "optimizer: got 0 gradients for 1 weights", Error);
    CHECK(weights[0].equal(torch::ones({2, 3})));
  }

  TEST_CASE("a stage without parameters has nothing to do") {
    make_sgd({.momentum = 0.9})->step({}, {}, 0.1);
    make_adamw({})->step({}, {}, 0.1);
  }
}
