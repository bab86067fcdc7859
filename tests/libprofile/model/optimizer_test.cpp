#include "libprofile/model/optimizer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>

#include "libprofile/core/error.h"
#include "tests/support/torch_test.h"

using namespace pp;
using namespace pp::model;
using at::Tensor;

TEST_SUITE("libprofile/model/optimizer") {
  TEST_CASE("the learning rate is that of the step") {
    // w = 1, gradient 1: 1 - 0.5 - 0.25
    const auto sgd = make_sgd({});
    const std::vector<Tensor> weights{at::ones({1})}, gradients{at::ones({1})};
    sgd->step(weights, gradients, 0.5);
    sgd->step(weights, gradients, 0.25);
    CHECK(weights[0].item<float>() == 0.25f);
  }

  TEST_CASE("the state is as large as state_ratio says") {
    const std::vector<Tensor> weights{at::ones({6})}, gradients{at::ones({6})};
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
    CHECK(momentum->state()[0].tensors[0].equal(gradients[0]));  // the first step takes the gradient as it is
    REQUIRE(adamw->state().size() == 3);
    CHECK(adamw->state()[0].tensors[0].sizes() == weights[0].sizes());
    CHECK(adamw->state()[2].tensors[0].item<float>() == 1.0f);
    for (const Optimizer* optimizer : {momentum.get(), adamw.get()}) {
      std::vector<std::string> names;
      for (const OptimizerSlot& slot : optimizer->state()) names.push_back(slot.name);
      CHECK(names == optimizer->slot_names());
    }
    CHECK(make_sgd({})->slot_names().empty());
  }

  TEST_CASE("an optimizer goes on from the state of another one, bit by bit") {
    using Maker = std::unique_ptr<Optimizer> (*)();
    const Maker sgd = [] { return make_sgd({.momentum = 0.9}); }, adamw = [] { return make_adamw({}); };
    for (const Maker make : {sgd, adamw}) {
      const std::vector<Tensor> gradients{at::arange(6, at::kFloat)};
      const std::vector<Tensor> all{at::ones({6})}, halves{at::ones({6})};
      const auto whole = make(), first = make(), second = make();
      for (int step = 0; step < 4; ++step) whole->step(all, gradients, 0.1);
      for (int step = 0; step < 2; ++step) first->step(halves, gradients, 0.1);
      second->set_state(first->state());
      for (int step = 0; step < 2; ++step) second->step(halves, gradients, 0.1);
      CHECK(all[0].equal(halves[0]));
    }
  }

  TEST_CASE("a gradient of another layout, dtype or count is refused") {
    const auto sgd = make_sgd({});
    const std::vector<Tensor> weights{at::ones({2, 3})};
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{at::ones({3, 2}).t()}, 0.1),
                         "optimizer: weight 0 and its gradient differ in shape or strides", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{at::ones({2, 3}, at::kDouble)}, 0.1),
                         "optimizer: weight 0 and its gradient differ in dtype", Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, std::vector{Tensor()}, 0.1), "optimizer: weight 0 has no gradient",
                         Error);
    CHECK_THROWS_WITH_AS(sgd->step(weights, {}, 0.1), "optimizer: got 0 gradients for 1 weights", Error);
    CHECK(weights[0].equal(at::ones({2, 3})));
  }

  TEST_CASE("a stage without parameters has nothing to do") {
    make_sgd({.momentum = 0.9})->step({}, {}, 0.1);
    make_adamw({})->step({}, {}, 0.1);
  }
}
