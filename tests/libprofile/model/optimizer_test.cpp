#include "libprofile/model/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <cmath>
#include <functional>

#include "libprofile/core/error.h"
#include "tests/support/torch_test.h"

namespace optimizer_test {

using namespace pp;
using namespace pp::model;
using at::Tensor;

namespace {

std::unique_ptr<Optimizer> make(OptimizerName name, const OptimizerSettings& given = {}, double decay = 0) {
  return std::make_unique<Optimizer>(name, given, decay);
}

constexpr int kSteps = 12;

// Weights and gradients of 75 elements: a vector kernel's body, also of bfloat16, and its tail.
std::vector<double> values(int step) {
  std::vector<double> all;
  for (int i = 0; i < 75; ++i) all.push_back(std::sin(1.7 * i + 0.9 * step) + 0.1 * step);
  return all;
}

Tensor tensor_of(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

Tensor wave(std::int64_t size, at::ScalarType dtype) { return at::arange(size, at::kDouble).sin().to(dtype); }

std::vector<Tensor> copies(const std::vector<Tensor>& of) {
  std::vector<Tensor> all;
  for (const Tensor& tensor : of) all.push_back(tensor.clone());
  return all;
}

/// torch.optim's documented recursion of one weight: state, the gradient, the number of the step from 1; the
/// new weight.
using Recursion = std::function<double(std::array<double, 2>& state, double weight, double gradient, int step)>;

/// Two tensors with the same values, so that lists are walked, over several steps with changing rates. `of`
/// makes the optimizer. A weight is at most 2.2 and rounded in each step, in bfloat16 by 2^-8 of 2 at most: 12
/// x 2^-8 in all, and as much again for gradients and state.
template <class Make>
void check_recursion(Make of, const std::function<Recursion(double rate)>& of_rate) {
  for (const auto& [dtype, tolerance] :
       {std::pair{at::kDouble, 1e-13}, {at::kFloat, 1e-5}, {at::kBFloat16, 24.0 / 256}}) {
    const auto optimizer = of();
    std::vector<double> expected = values(0);
    std::vector<std::array<double, 2>> state(expected.size());
    const std::vector<Tensor> weights{tensor_of(expected).to(dtype), tensor_of(expected).to(dtype)};
    for (int step = 1; step <= kSteps; ++step) {
      const double rate = 0.1 / step;
      const std::vector<double> gradient = values(step);
      optimizer->step(weights, std::vector<Tensor>(2, tensor_of(gradient).to(dtype)), rate);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = of_rate(rate)(state[i], expected[i], gradient[i], step);
    }
    for (const Tensor& weight : weights)
      CHECK((weight.to(at::kDouble) - tensor_of(expected)).abs().max().item<double>() < tolerance);
  }
}

}  // namespace

TEST_SUITE("libprofile/model/optimizer") {
  TEST_CASE("sgd, plain, with momentum and with Nesterov's momentum and decay, is its recursion") {
    for (const auto& [momentum, nesterov, decay] : {std::tuple{0., 0., 0.}, {0.9, 0., 0.}, {0.9, 1., 0.05}}) {
      check_recursion(
          [&] {
            return make(OptimizerName::sgd, {{"momentum", momentum}, {"nesterov", nesterov}}, decay);
          },
          [=](double rate) {
            return [=](std::array<double, 2>& state, double w, double g, int) {
              g += decay * w;
              state[0] = momentum * state[0] + g;
              return w - rate * (nesterov != 0 ? g + momentum * state[0] : state[0]);
            };
          });
    }
  }

  TEST_CASE("adam adds the decay to the gradient, adamw takes it off the weight") {
    const auto adam = [](double w, std::array<double, 2>& state, double g, int step, double rate) {
      state[0] = 0.8 * state[0] + 0.2 * g;
      state[1] = 0.95 * state[1] + 0.05 * g * g;
      const double mean = state[0] / (1 - std::pow(0.8, step)), square = state[1] / (1 - std::pow(0.95, step));
      return w - rate * mean / (std::sqrt(square) + 1e-6);
    };
    const OptimizerSettings given{{"beta1", 0.8}, {"beta2", 0.95}, {"epsilon", 1e-6}};
    check_recursion([&] { return make(OptimizerName::adam, given, 0.05); },
                    [&](double rate) {
                      return [=](std::array<double, 2>& state, double w, double g, int step) {
                        return adam(w, state, g + 0.05 * w, step, rate);
                      };
                    });
    check_recursion([&] { return make(OptimizerName::adamw, given, 0.05); },
                    [&](double rate) {
                      return [=](std::array<double, 2>& state, double w, double g, int step) {
                        return adam(w * (1 - rate * 0.05), state, g, step, rate);
                      };
                    });
  }

  TEST_CASE("rmsprop, with and without momentum and decay, is its recursion") {
    for (const double momentum : {0.0, 0.7}) {
      for (const double decay : {0.0, 0.05}) {
        CAPTURE(momentum);
        CAPTURE(decay);
        const OptimizerSettings given{{"alpha", 0.9}, {"epsilon", 1e-6}, {"momentum", momentum}};
        check_recursion([&] { return make(OptimizerName::rmsprop, given, decay); },
                        [&](double rate) {
                          return [=](std::array<double, 2>& state, double w, double g, int) {
                            g += decay * w;
                            state[0] = 0.9 * state[0] + 0.1 * g * g;
                            state[1] = momentum * state[1] + g / (std::sqrt(state[0]) + 1e-6);
                            return w - rate * state[1];
                          };
                        });
      }
    }
  }

  TEST_CASE("adagrad with decay of weights and of the rate is its recursion") {
    const OptimizerSettings given{{"lr_decay", 0.3}, {"epsilon", 1e-6}};
    check_recursion([&] { return make(OptimizerName::adagrad, given, 0.05); },
                    [&](double rate) {
                      return [=](std::array<double, 2>& state, double w, double g, int step) {
                        g += 0.05 * w;
                        state[0] += g * g;
                        return w - rate / (1 + (step - 1) * 0.3) * g / (std::sqrt(state[0]) + 1e-6);
                      };
                    });
  }

  TEST_CASE("the learning rate is that of the step") {
    // w = 1, gradient 1: 1 - 0.5 - 0.25
    const auto sgd = make(OptimizerName::sgd, {{"momentum", 0}});
    const std::vector<Tensor> weights{at::ones({1})}, gradients{at::ones({1})};
    sgd->step(weights, gradients, 0.5);
    sgd->step(weights, gradients, 0.25);
    CHECK(weights[0].item<float>() == 0.25f);
  }

  TEST_CASE("the state is what its row says") {
    for (const OptimizerRow& row : kOptimizerRows) {
      for (const double momentum : {0.0, 0.9}) {
        CAPTURE(row.text);
        OptimizerSettings given;
        if (std::ranges::find(row.settings, "momentum", &OptimizerSetting::name) != row.settings.end())
          given["momentum"] = momentum;
        const std::vector<Tensor> weights{at::ones({6})}, gradients{at::ones({6})};
        const auto optimizer = make(row.name, given);
        CHECK(optimizer->state().empty());
        optimizer->step(weights, gradients, 0.1);
        std::vector<std::string> names;
        double bytes = 0;
        for (const OptimizerSlot& slot : optimizer->state()) {
          names.push_back(slot.name);
          if (slot.name == "step") {
            CHECK(slot.tensors[0].item<float>() == 1.0f);
          } else {
            CHECK(slot.tensors[0].sizes() == weights[0].sizes());
            bytes += static_cast<double>(slot.tensors[0].nbytes());
          }
        }
        CHECK(names == optimizer->slot_names());
        CHECK(bytes == 24 * state_ratio_of(row.name, given));  // 6 floats
        if (row.name == OptimizerName::sgd && momentum > 0)
          CHECK(optimizer->state()[0].tensors[0].equal(
              gradients[0]));  // the first step takes the gradient as it is
      }
    }
  }

  TEST_CASE("an optimizer goes on from the state of another one, bit by bit") {
    using Maker = std::unique_ptr<Optimizer> (*)();
    const std::vector<Maker> makers{[] {
                                      return make(OptimizerName::sgd, {{"momentum", 0.9}});
                                    },
                                    [] { return make(OptimizerName::adam); },
                                    [] { return make(OptimizerName::adamw); },
                                    [] {
                                      return make(OptimizerName::rmsprop, {{"momentum", 0.5}});
                                    },
                                    [] {
                                      return make(OptimizerName::adagrad, {{"lr_decay", 0.5}});
                                    }};
    for (const Maker make : makers) {
      const std::vector<Tensor> gradients{at::arange(6, at::kFloat)};
      const std::vector<Tensor> all{at::ones({6})}, halves{at::ones({6})};
      const auto whole = make(), first = make(), second = make();
      for (int step = 0; step < 4; ++step) whole->step(all, gradients, 0.1);
      for (int step = 0; step < 2; ++step) first->step(halves, gradients, 0.1);
      second->set_state(first->state());
      for (int step = 0; step < 2; ++step) second->step(halves, gradients, 0.1);
      CHECK(all[0].equal(halves[0]));
      const std::vector<Tensor> of_whole{at::ones({6})}, of_second{at::ones({6})};
      whole->predict(all, of_whole, 0.3);
      second->predict(halves, of_second, 0.3);
      CHECK(of_whole[0].equal(of_second[0]));
    }
  }

  // Sizes below, at and above those of a piece (256 KiB), with tails of kernels' vectors, and one of four
  // dimensions whose memory is in another order.
  TEST_CASE("what was before becomes the update of a copy, bit by bit, and stays") {
    using Maker = std::unique_ptr<Optimizer> (*)();
    const int threads = at::get_num_threads();
    at::set_num_threads(1);  // LibTorch cuts whole tensors by its threads: bfloat16's tails round otherwise
    const std::vector<Maker> makers{
        [] {
          return make(OptimizerName::sgd, {{"momentum", 0}});
        },
        [] {
          return make(OptimizerName::sgd, {{"momentum", 0.9}, {"nesterov", 1}}, 0.1);
        },
        [] { return make(OptimizerName::adam, {}, 0.1); },
        [] { return make(OptimizerName::adamw, {}, 0.1); },
        [] {
          return make(OptimizerName::rmsprop, {{"momentum", 0.5}}, 0.1);
        },
        [] {
          return make(OptimizerName::adagrad, {{"lr_decay", 0.5}});
        }};
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      std::vector<Tensor> start;
      for (const std::int64_t size : {3, 65536, 1, 65, 200'011, 7}) start.push_back(wave(size, dtype));
      start.push_back(wave(24'000, dtype).view({20, 30, 8, 5}).contiguous(at::MemoryFormat::ChannelsLast));
      for (const Maker make : makers) {
        const auto in_place = make(), by_pieces = make();
        const std::vector<Tensor> expected = copies(start);
        std::vector<Tensor> before = copies(start), after = copies(start);
        for (int step = 1; step <= 3; ++step) {
          std::vector<Tensor> gradients;
          for (const Tensor& weight : start) gradients.push_back(weight.cos() / step);
          for (const Tensor& weight : after) weight.fill_(7);
          const std::vector<Tensor> kept = copies(before);
          in_place->step(expected, gradients, 0.1);
          by_pieces->step(after, gradients, 0.1, before);
          for (std::size_t i = 0; i < start.size(); ++i) {
            CHECK(after[i].equal(expected[i]));
            CHECK(before[i].equal(kept[i]));
          }
          std::swap(before, after);
        }
        for (std::size_t s = 0; s < in_place->state().size(); ++s) {
          for (std::size_t i = 0; i < start.size(); ++i)
            CHECK(by_pieces->state()[s].tensors[i].equal(in_place->state()[s].tensors[i]));
        }
      }
    }
    at::set_num_threads(threads);
  }

  TEST_CASE("a prediction goes on in the direction of the state, each optimizer by its formula") {
    const double distance = 0.3;  // three steps at rate 0.1
    const std::vector<Tensor> weights{tensor_of(values(0))}, predicted{tensor_of(values(5))};
    const auto after = [&](Optimizer& optimizer) {
      weights[0].copy_(tensor_of(values(0)));
      optimizer.predict(weights, predicted, distance);
      CHECK(predicted[0].equal(weights[0]));  // nothing is known yet
      for (int step = 1; step <= 3; ++step) optimizer.step(weights, std::vector{tensor_of(values(step))}, 0.1);
      const Tensor before = weights[0].clone();
      optimizer.predict(weights, predicted, distance);
      CHECK(weights[0].equal(before));
      return predicted[0];
    };
    const auto moved = [&](const Tensor& by) { return weights[0] - distance * by; };
    for (const bool nesterov : {false, true}) {
      const auto sgd = make(OptimizerName::sgd, {{"momentum", 0.9}, {"nesterov", nesterov ? 1 : 0}});
      const Tensor found = after(*sgd);
      CHECK(found.allclose(moved(sgd->state()[0].tensors[0]), 1e-14, 1e-14));
    }
    const auto rmsprop = make(OptimizerName::rmsprop, {{"momentum", 0.9}});
    const Tensor by_rmsprop = after(*rmsprop);
    CHECK(by_rmsprop.allclose(moved(rmsprop->state()[1].tensors[0]), 1e-14, 1e-14));
    const auto means = [](const Optimizer& adam) {  // after three steps
      return adam.state()[0].tensors[0] / (1 - 0.9 * 0.9 * 0.9) /
             ((adam.state()[1].tensors[0] / (1 - 0.999 * 0.999 * 0.999)).sqrt() + 1e-8);
    };
    const auto adam = make(OptimizerName::adam), adamw = make(OptimizerName::adamw, {}, 0.5);
    const Tensor by_adam = after(*adam);
    CHECK(by_adam.allclose(moved(means(*adam)), 1e-14, 1e-14));
    const Tensor by_adamw = after(*adamw);
    CHECK(by_adamw.allclose(moved(means(*adamw) + 0.5 * weights[0]), 1e-14, 1e-14));
    CHECK(after(*make(OptimizerName::adagrad)).equal(weights[0]));
  }

  TEST_CASE("row 22: under a constant gradient and a steady state the prediction is what comes") {
    const std::vector<Tensor> weights{at::ones({4}, at::kDouble)}, predicted{at::empty({4}, at::kDouble)};
    const std::vector<Tensor> gradients{at::arange(1, 5, at::kDouble)};
    for (const auto& optimizer : {make(OptimizerName::sgd, {{"momentum", 0.9}}), make(OptimizerName::adam),
                                  make(OptimizerName::rmsprop, {{"alpha", 0.5}, {"momentum", 0.9}})}) {
      for (int step = 0; step < 400; ++step) optimizer->step(weights, gradients, 0.01);  // 0.9^400 is 5e-19
      optimizer->predict(weights, predicted, 3 * 0.01);
      for (int step = 0; step < 3; ++step) optimizer->step(weights, gradients, 0.01);
      CHECK(weights[0].allclose(predicted[0], 0, 1e-6));
    }
  }

  TEST_CASE("a gradient of another layout, dtype or count is refused") {
    const auto sgd = make(OptimizerName::sgd, {{"momentum", 0}});
    const std::vector<Tensor> weights{at::ones({2, 3})};
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{at::ones({3, 2}).t()}, 0.1),
                         "optimizer: weight 0 and its gradient differ in shape or strides", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{at::ones({2, 3}, at::kDouble)}, 0.1),
                         "optimizer: weight 0 and its gradient differ in dtype", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{Tensor()}, 0.1), "optimizer: weight 0 has no gradient",
                         Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, {}, 0.1), "optimizer: got 0 gradients for 1 weights", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, weights, 0.1, std::vector{at::ones({3, 2}).t()}),
                         "optimizer: weight 0 and its weight before differ in shape or strides", Error);
    CHECK(weights[0].equal(at::ones({2, 3})));
  }

  TEST_CASE("a stage without parameters has nothing to do") {
    make(OptimizerName::sgd, {{"momentum", 0.9}})->step({}, {}, 0.1);
    make(OptimizerName::adamw)->step({}, {}, 0.1);
  }
}

}  // namespace optimizer_test
